// Dead letters and deferred events: counts, lists with the filters of the commands, one row with all that is known
// of it, and what an operator may do about one or about all that match.

import { html, useEffect, useRef, useState } from './lib/htm-preact.js'
import { call, may, post, useGet } from './api.js'
import { Ago, At, Change, Content, Copy, Facts, Fault, Field, Loaded, Old, Select, T, Table, bytes, clock, count, cut, real, things, visible } from './parts.js'
import { Elsewhere, Rate, Resend, elsewhere, outcome, settled, useDry } from './requests.js'

const names = {
  'dead-letters': { one: 'dead letter', many: 'dead letters', at: 'died_at', came: 'Died' },
  deferred: { one: 'deferred event', many: 'deferred events', at: 'deferred_at', came: 'Deferred' },
}

// The actions of both tables: a word for the button, and what it does.
const actions = {
  replay: ['Replay', 'publishes again'],
  discard: ['Discard', 'closes without publishing'],
  redact: ['Redact', 'removes the contents for good of', true],
  purge: ['Purge', 'deletes for good', true],
  retry: ['Retry now', 'tries now, without waiting for the backoff,'],
  'dead-letter': ['Give up', 'turns into dead letters', true],
}
const bulkActions = { 'dead-letters': ['replay', 'discard', 'redact', 'purge'], deferred: ['retry', 'dead-letter'] }

const fields = ['id', 'key', 'key_of', 'aggregate', 'type', 'destination', 'class', 'error', 'state', 'from', 'to']
const filterOf = (query) => Object.fromEntries(fields.filter((f) => query[f]).map((f) => [f, query[f]]))

export const link = (screen, query = {}) => {
  const q = new URLSearchParams(Object.entries(query).filter(([, v]) => v)).toString()
  return `#/${screen}${q && '?' + q}`
}

const local = (at) => (Number.isNaN(Date.parse(at)) ? '' : new Date(new Date(at) - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16))

// Period is the fields of a time, and given what a form of filters has in it.
export const Period = ({ filter }) => html`<${Field} label="From" name="from" type="datetime-local" value=${local(filter.from)} /><${Field} label="To" name="to" type="datetime-local" value=${local(filter.to)} />`
export const given = (form) => Object.fromEntries([...new FormData(form)].map(([k, v]) => [k, v && (k === 'from' || k === 'to') ? new Date(v).toISOString() : v]))

function Filters({ of, filter }) {
  const submit = (e) => { e.preventDefault(); location.hash = link(of, given(e.target)) }
  const states = ['', 'open', 'replaying', 'replayed', 'discarded', 'purged'].map((s) => [s, s || 'all but purged'])
  return html`<form class="filters" role="search" aria-label="Filter" onSubmit=${submit} key=${JSON.stringify(filter)}>
    ${of === 'dead-letters' && html`<${Select} label="State" name="state" value=${filter.state ?? ''} options=${states} />`}
    <${Select} label="Class" name="class" value=${filter.class ?? ''} options=${['', 'destination', 'transient', 'permanent'].map((c) => [c, c || 'any'])} />
    ${['Reason or error', 'Destination', 'Type', 'Aggregate', 'Key', 'Id'].map((label) => {
      const name = label.split(' ').pop().toLowerCase()
      return html`<${Field} label=${label} name=${name} value=${filter[name]} />`
    })}
    <${Period} filter=${filter} />
    ${filter.key_of && html`<${Field} label="Key of row" name="key_of" value=${filter.key_of} />`}
    <div class="buttons"><button class="primary">Filter</button><a class="button" href=${link(of)}>Clear</a></div>
  </form>`
}

function Groups({ of, state, group }) {
  const none = state === 'replaying' || state === 'purged' // of these the API counts no groups
  const asked = useGet(none ? null : of, { group, state })
  // a value that is empty, cut or no UTF-8 chooses other rows
  const filter = (value) => (!value || value.includes('\ufffd') || new TextEncoder().encode(value).length > 196 ? null : link(of, { group, [group === 'reason' ? 'error' : group]: value, state: of === 'deferred' ? '' : state || 'open' }))
  return html`<section><h2>Counted by ${['reason', 'destination', 'type'].map((b, i) => html`${i > 0 && ' '}<a class="tab" href=${link(of, { state, group: b })} aria-current=${b === group ? 'true' : undefined}>${b}</a>`)}</h2>
    ${none && html`<p class="muted">Those that are ${state} are not counted.</p>`}
    <${Loaded} of=${asked}>${(data) => html`
      <${Table} caption=${`${names[of].many} by ${group}`} numbers=${[0]} empty="There are none."
        head=${['Count', 'Oldest', group[0].toUpperCase() + group.slice(1), ...(of === 'deferred' ? ['Refused because'] : [])]}
        rows=${data.items.map((g) => [`${g.or_more ? 'more than ' : ''}${count(g.count)}`, html`<${Ago} at=${g.oldest} />`,
          filter(g.value) ? html`<a href=${filter(g.value)}><${T} of=${g.value} /></a>` : html`<${T} of=${g.value} none=${of === 'deferred' && group === 'reason' ? 'not refused: behind another one, or not tried yet' : '–'} />`,
          ...(of === 'deferred' ? [html`<${T} of=${[group !== 'reason' && g.reason, g.error_text].filter(Boolean).join(': ') || null} />`] : [])])} />
      ${data.more && html`<p class="muted">There are more groups.</p>`}`}
    </${Loaded}></section>`
}

export const Key = ({ row }) => html`<${T} of=${row.key} max=${60} />${row.aggregate && html` <span class="muted">of <${T} of=${row.aggregate} max=${40} /></span>`}`

// Rows are a table of events, on this screen and on others.
export const Rows = ({ of, rows, caption, empty }) => html`<${Table} caption=${caption} empty=${empty} numbers=${[0, 6]}
  head=${['Number', names[of].came, of === 'deferred' ? 'Next attempt' : 'State', 'Type', 'Key', 'Destination', 'Attempts', 'Reason']}
  rows=${rows.map((r) => Object.assign([
    html`<a href=${`#/${of}/${r.n}`}>${r.n}</a>`, html`<${At} at=${r[names[of].at]} />`,
    of === 'deferred' ? html`<${At} at=${r.next_attempt} none=${r.reason ? 'when its destination takes it' : 'behind another one'} />` : r.state,
    html`<${T} of=${r.type} max=${60} />`, html`<${Key} row=${r} />`, html`<${T} of=${r.destination} max=${80} />`, count(r.attempts),
    html`<${T} of=${r.reason || null} />${r.error_text && html`<small class="error"><${T} of=${r.error_text} max=${120} /></small>`}`], { key: r.n }))} />`

export function DeadLetters({ screen, n, query, live }) {
  const of = screen === 'deferred' ? 'deferred' : 'dead-letters'
  const [bulk, setBulk] = useState()
  const [turn, again] = useState(0)
  useEffect(() => setBulk(), [query]) // a dialog is of the address that it was opened at
  const filter = filterOf(query)
  const asked = useGet(n ? null : of, { ...filter, cursor: query.cursor, limit: 50 })
  if (n) return html`<${One} key=${of + n} of=${of} n=${n} live=${live} />`
  const s = live.status
  const tab = (to, text, table, total) => html`<a class="tab" href=${link(to, to === 'deferred' ? {} : { state: 'open' })} aria-current=${to === of ? 'true' : undefined}>${text} ${s && html`<b>${real(s[table].counted_at) ? count(total) : '?'}</b><${Old} at=${s[table].counted_at} now=${s.now} />`}</a>`
  return html`
    <nav class="tabs" aria-label="Tables">${tab('dead-letters', 'Open dead letters', 'dead_letters', s?.dead_letters.open)}${tab('deferred', 'Deferred events', 'deferred', s?.deferred.events)}</nav>
    <${Groups} key=${of + turn} of=${of} state=${filter.state} group=${query.group || (of === 'deferred' ? 'destination' : 'reason')} />
    <section><h2>The newest</h2>
      <${Filters} of=${of} filter=${filter} />
      ${may() && asked.data && !asked.problem && html`<div class="buttons">All that match: ${bulkActions[of].map((a) => html`<button type="button" onClick=${() => setBulk({ of, action: a, filter })}>${actions[a][0]}…</button>`)}</div>`}
      <${Loaded} of=${asked}>${(data) => html`
        <${Rows} of=${of} rows=${data.items} caption=${`${names[of].many}, the newest first`} empty=${Object.keys(filter).length ? 'None matches.' : 'There are none.'} />
        <div class="buttons">${query.cursor && html`<a class="button" href=${link(of, filter)}>The newest</a>`}
          ${data.next && html`<a class="button" href=${link(of, { ...filter, cursor: data.next })}>Older</a>`}</div>`}
      </${Loaded}>
    </section>
    <${Jobs} key=${turn} />
    ${bulk && html`<${Bulk} ...${bulk} kind=${s?.broker.kind} onClose=${() => { setBulk(); asked.reload(); again((t) => t + 1) }} />`}`
}

function Bulk({ of, action, filter, kind, onClose }) {
  const [word, does, danger] = actions[action]
  const chosen = Object.keys(filter).length ? { ...filter } : { all: true }
  if (filter.key_of) chosen.key_of = Number(filter.key_of)
  const dry = useDry(`${of}/${action}`, chosen)
  const send = async (reason, form) => {
    const job = await post(`${of}/${action}`, { ...chosen, ...elsewhere(form), rate: Number(form.rate || 0), reason })
    return job.id ? `Job ${job.id} has begun. It is listed below the table, where it can be cancelled.` : 'Nothing matches: nothing was changed.'
  }
  const words = Object.entries(filter).map(([k, v]) => `${k} ${k === 'from' || k === 'to' ? clock(v) : visible(cut(String(v), 80))}`).join(', ')
  const which = action !== 'purge' ? `every ${names[of].one} that matches`
    : filter.state ? `every ${filter.state} dead letter that matches`
      : filter.key || filter.key_of ? 'every dead letter that matches, open or closed, and every deferred event that matches, which is then never delivered'
        : 'every closed dead letter (replayed or discarded) that matches'
  return html`<${Change} title=${`${word} ${names[of].many}`} button=${dry.matched ? `${word} ${count(dry.matched)}` : word} danger=${danger} ready=${dry.matched > 0 && !Number.isNaN(chosen.key_of)}
      send=${send} onClose=${onClose}
      text=${html`This ${does} ${which}: ${words || 'all of them'}. The dry run has counted <strong>${dry.problem ? 'nothing' : dry.matched == null ? '…' : things(dry.matched, 'match', 'matches')}</strong>.`}>
    <${Fault} problem=${dry.problem} />
    ${action === 'replay' && html`<${Elsewhere} kind=${kind} />`}
    <${Rate} />
  </${Change}>`
}

// Jobs are the newest bulk requests, with their progress.
export function Jobs() {
  const [busy, setBusy] = useState(false)
  const [cancel, setCancel] = useState()
  const asked = useGet('jobs', { limit: 10 }, busy ? 3 : 10)
  const items = asked.data?.items
  useEffect(() => setBusy(Boolean(items?.some((j) => j.state === 'running'))), [items])
  return html`<section><h2>Jobs</h2><${Loaded} of=${asked}>${(data) => html`<${Table} caption="Jobs, the newest first" numbers=${[0, 4, 5]} empty="Nobody has asked for many at once."
    head=${['Job', 'Asked', 'What', 'Progress', 'Done', 'Failed', 'Who', 'Why', 'Action']}
    rows=${data.items.slice(0, 10).map((j) => Object.assign([j.id, html`<${At} at=${j.at} />`, j.kind,
      html`<span class="job"><progress max=${j.matched || 1} value=${j.done + j.failed + j.skipped + j.cancelled} aria-label=${`Job ${j.id}`}></progress> ${j.state}${j.rate ? `, ${count(j.rate)}/s` : ''}</span>${j.result && html`<small class="error"><${T} of=${j.result} max=${200} /></small>`}`,
      `${count(j.done)} of ${count(j.matched)}`, count(j.failed), html`<${T} of=${j.who} max=${40} />`, html`<${T} of=${j.why} max=${80} />`,
      j.state === 'running' && may() && html`<button type="button" class="small" onClick=${() => setCancel(j)}>Cancel…</button>`], { key: j.id }))} />`}</${Loaded}>
    ${cancel && html`<${Change} title=${`Cancel job ${cancel.id}`} text="The work already done stays." button="Cancel the job" danger
      send=${async (reason) => { await call('DELETE', `jobs/${cancel.id}`, { body: { reason } }) }} onDone=${asked.reload} onClose=${() => setCancel()} />`}
  </section>`
}

// happened is what is known of a row, in order.
function happened(d, of) {
  const list = [
    [d.committed_at, 'committed', `At position ${d.position}.`],
    [d.first_failed_at, 'refused first', ''],
    [d.failed_at !== d.first_failed_at && d.failed_at, 'refused last', [d.reason, d.error_text].filter(Boolean).join(': ')],
    [d.deferred_at, 'deferred', ''],
    [d.died_at, 'dead letter', [d.reason, d.error_text].filter(Boolean).join(': ')],
    [d.mirrored_at, 'mirrored', 'A copy was published to the mirror of dead letters.'],
    [d.closed_at, d.state, ''],
    [of === 'deferred' && d.next_attempt, 'next attempt', ''],
    ...(d.requests ?? []).map((q) => [q.at, `${q.kind} asked`, `Request ${q.id} of ${q.who}${q.why ? ': ' + q.why : ''}. It is ${q.state}${q.result ? ': ' + q.result : ''}.`]),
    ...(d.audit ?? []).map((a) => [a.at, `audit: ${a.action}`, `${a.who}${a.why ? ': ' + a.why : ''}${a.result ? '. ' + a.result : ''}`]),
  ]
  return list.filter(([at]) => at && !String(at).startsWith('0001')).sort((a, b) => new Date(a[0]) - new Date(b[0]))
}

function One({ of, n, live }) {
  const asked = useGet(`${of}/${encodeURIComponent(n)}`)
  const [doing, setDoing] = useState()
  const [request, setRequest] = useState() // that may be withdrawn
  const gone = useRef(false) // it is a dead letter now: its number is another one
  const done = () => { if (!gone.current) asked.reload() }
  const closed = () => { setDoing(); if (gone.current) location.hash = '#/deferred' }
  const what = names[of]
  const can = (d) => {
    if (!may() || d.copied) return []
    if (of === 'deferred') return ['retry', 'dead-letter']
    return [d.state === 'open' && !d.redacted && 'replay', d.state === 'open' && 'discard', !d.redacted && d.state !== 'purged' && 'redact'].filter(Boolean)
  }
  const send = (d) => async (reason, form) => {
    const end = await settled(await post(`${of}/${d.n}/${doing}`, { reason, ...elsewhere(form) }))
    gone.current = doing === 'dead-letter' && end.state === 'done'
    return outcome(end)
  }
  return html`<p><a href=${link(of, of === 'deferred' ? {} : { state: 'open' })}>All ${what.many}</a></p>
    <${Loaded} of=${asked}>${(d) => html`
      <h2>${what.one[0].toUpperCase() + what.one.slice(1)} ${d.n}, ${d.state}</h2>
      ${d.copied && html`<p class="fault">It is of another system (pg_upgrade, restore or copy): nobody acts on it here. See cdc-relay check.</p>`}
      <section>${d.error_text && html`<p class="why"><strong>${d.reason}</strong> (${d.class}): <${T} of=${d.error_text} max=${1000} /></p>`}
      ${d.fault && html`<p class="why"><${T} of=${d.fault} max=${1000} /></p>`}
      ${may() && html`<div class="buttons">${can(d).map((a) => html`<button type="button" onClick=${() => setDoing(a)}>${actions[a][0]}…</button>`)}
        ${d.id && !d.copied && !d.redacted && !d.cut?.includes('id') && html`<button type="button" onClick=${() => setDoing('resend')}>Resend…</button>`}
        ${d.requests?.filter((q) => q.state === 'waiting').map((q) => html`<button type="button" onClick=${() => setRequest(q)}>Withdraw request ${q.id}…</button>`)}</div>`}
      <${Facts} of=${[
        ['Event', html`<${T} of=${d.id} max=${200} /> ${d.id && html`<${Copy} text=${d.id} />`}`], ['Type', html`<${T} of=${d.type} />`],
        ['Key', html`<${Key} row=${d} /> <a href=${link(of, { key_of: d.n })}>all of it</a>`], ['Destination', html`<${T} of=${d.destination || null} max=${300} />`],
        ['Attempts', count(d.attempts)], ['Payload', d.payload_bytes == null ? 'none' : `${bytes(d.payload_bytes)}${d.content_type ? ', ' + visible(cut(d.content_type, 80)) : ''}`],
        ['At fault', d.accused && html`<${T} of=${d.accused} />`], ['Waits behind', d.behind && html`<a href=${`#/deferred/${d.behind}`}>row ${d.behind}</a>`],
        ['Left out', d.left_out && `The row has ${bytes(d.left_out.row_bytes)}, more than source.max_event_bytes; a replay reads it from ${visible(d.left_out.table) || 'nowhere'}`],
        ['Trace', d.traceparent && html`<${T} of=${d.traceparent} />`], ['Redacted', d.redacted && 'its contents are removed'],
        ['Cut', d.cut?.length && `not shown to the end: ${d.cut.join(', ')}`],
      ]} /></section>
      <section><h3>Payload</h3><${Content} of=${d.payload} name="payload" /></section>
      ${d.headers && html`<section><h3>Headers</h3><${Content} of=${d.headers} name="headers" /></section>`}
      ${d.columns?.map((c) => html`<section><h3>Column <${T} of=${c.name} /></h3><${Content} of=${c.value} name=${'column ' + c.name} /></section>`)}
      ${d.raw && html`<section><h3>The row of the outbox</h3><${Content} of=${d.raw} name="row" /></section>`}
      <section><h3>What happened</h3><${Table} caption="What happened, in order" head=${['When', 'What', 'In words']} empty="Nothing is known."
        rows=${happened(d, of).map(([at, kind, text]) => [html`<${At} at=${at} />`, kind, html`<${T} of=${text || null} max=${500} none="" />`])} /></section>
      ${request && html`<${Change} title=${`Withdraw request ${request.id}`} button="Withdraw" reason=${false} text=${`The ${request.kind} of ${what.one} ${d.n} is not carried out, if it still waits.`}
          send=${async () => { await call('DELETE', `requests/${request.id}`) }} onDone=${asked.reload} onClose=${() => setRequest()} />`}
      ${doing === 'resend' ? html`<${Resend} choice=${{ ids: [d.id], unordered: true }} what="the event" kind=${live.status?.broker.kind} onDone=${done} onClose=${closed} />`
    : doing && html`<${Change} title=${`${actions[doing][0]}: ${what.one} ${d.n}`} danger=${actions[doing][2]} text=${`This ${actions[doing][1]} one ${what.one}.`}
          button=${actions[doing][0]} send=${send(d)} onDone=${done} onClose=${closed}>
        ${doing === 'replay' && html`<${Elsewhere} kind=${live.status?.broker.kind} />`}
      </${Change}>`}`}
    </${Loaded}>`
}
