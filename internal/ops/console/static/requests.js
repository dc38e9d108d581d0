// What operators ask for: the dry run before it, another destination, rows of the outbox sent again, and how it went.

import { html, useEffect, useState } from './lib/htm-preact.js'
import { get, post, useGet } from './api.js'
import { Change, Fault, Field, Select, T, count, cut, things, visible } from './parts.js'

// useDry is the dry run of a request: what it counts, or the problem. It is empty until that is known of this body.
export function useDry(path, body) {
  const [dry, set] = useState({})
  const key = JSON.stringify(body)
  useEffect(() => {
    post(path, { ...body, dry_run: true }).then((counted) => set({ ...counted, key }), (problem) => set({ problem, key }))
  }, [key])
  return dry.key === key ? dry : {}
}

// Elsewhere are the fields of another destination, of the broker that is configured.
export const Elsewhere = ({ kind }) => (kind === 'kafka' ? html`<${Field} label="Another topic" name="topic" hint="Empty: where it was going." />`
  : kind === 'rabbitmq' && html`<${Field} label="Another exchange" name="exchange" hint="Empty: where it was going." /><${Field} label="Another routing key" name="routing_key" />`)
export const elsewhere = (form) => Object.fromEntries(['exchange', 'routing_key', 'topic'].filter((f) => form[f]).map((f) => [f, form[f]]))

export const Rate = () => html`<${Field} label="At most so many a second" name="rate" type="number" min="0" hint="Empty: as fast as they are carried out." />`

// Resend sends rows of the outbox tables again: those of ids, of a gap, or all that are not known to be sent.
export function Resend({ choice, what, kind, onDone, onClose }) {
  const [how, setHow] = useState({})
  const tables = useGet(choice.gap ? null : 'config').data?.outbox_tables // a gap is sent as a whole
  const body = { ...choice, ...how }
  const dry = useDry('resend', body)
  const send = (reason, form) => post('resend', { ...body, ...elsewhere(form), rate: Number(form.rate || 0), reason }).then(jobOutcome)
  return html`<${Change} title=${`Resend ${what}`} button=${dry.matched ? `Resend ${count(dry.matched)}` : 'Resend'} ready=${dry.matched > 0 || (dry.matched === 0 && Boolean(choice.gap))}
      send=${send} onDone=${onDone} onClose=${onClose}
      text=${html`The rows of the outbox tables are sent again, out of order: events of their keys that came later may have been sent before. A consumer may see them twice.
        The dry run has counted <strong>${dry.problem ? 'nothing' : dry.matched == null ? '…' : things(dry.matched, 'row')}</strong>${dry.order && html`, in this order: <${T} of=${dry.order} />`}.`}>
    <${Fault} problem=${dry.problem} />
    ${dry.notes?.map((n) => html`<p class="muted"><${T} of=${n} max=${500} /></p>`)}
    ${tables?.length > 1 && html`<${Select} label="Rows of" name="table" value=${how.table ?? ''} options=${[['', 'every outbox table'], ...tables.map((t) => [t, visible(t)])]}
      onChange=${(e) => { const table = e.target.value; setHow((h) => ({ ...h, table: table || undefined })) }} />`}
    ${!choice.ids && html`<label class="check"><input type="checkbox" onChange=${(e) => { const yes = e.target.checked; setHow((h) => ({ ...h, unordered: yes })) }} /> in any order, if the order of the commits is not known</label>`}
    <${Elsewhere} kind=${kind} /><${Rate} />
  </${Change}>`
}

// ended waits a while, 15 s, for the end of a request or a job.
async function ended(it, look) {
  for (let i = 0; i < 40 && /^(waiting|running)$/.test(it.state) && !it.note; i++) {
    await new Promise((done) => { setTimeout(done, i < 10 ? 100 : 500) })
    it = await look(it.id).catch(() => it) // it is stored, whatever a look at it says
  }
  return it
}
export const settled = (request) => ended(request, (id) => get(`requests/${id}`))

// outcome says how a request went.
export function outcome({ id, state, result, note }) {
  if (note) return visible(note)
  if (state === 'waiting') return `Request ${id} is stored; it is not known to be carried out yet.`
  return `Request ${id}: ${state}${result ? ', ' + visible(cut(result, 300)) : ''}.`
}

// jobOutcome waits a while for a job's end.
export async function jobOutcome(job) {
  if (!job.id) return job.note ? visible(job.note) : 'Nothing matches: nothing was changed.'
  job = await ended(job, (id) => get(`jobs/${id}`))
  const why = job.result || (job.failed && job.failures?.[0]?.result)
  return `Job ${job.id}: ${job.state}, ${count(job.done)} of ${count(job.matched)} done${job.failed ? `, ${count(job.failed)} failed` : ''}${why ? ': ' + visible(cut(why, 200)) : ''}.`
}
