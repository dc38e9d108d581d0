// Find: an event by its id, or the events of a key: where each is, and how that is known.

import { html } from './lib/htm-preact.js'
import { useGet } from './api.js'
import { At, Command, Facts, Field, Loaded, Select, T, Table } from './parts.js'
import { Key, Period, Rows, given, link } from './rows.js'

const states = { delivered: 'ok', 'in flight': 'ok', deferred: 'warn', 'not seen': 'warn', 'dead letter': 'bad', 'not known to be sent': 'bad' }
const State = ({ of }) => html`<span class=${'word ' + (states[of] ?? '')}>${of}</span>`

function ById({ id }) {
  const dots = id === '.' || id === '..' // a browser takes them for a folder
  const asked = useGet(dots ? null : `events/${encodeURIComponent(id)}`)
  if (dots) return html`<p class="muted">A browser cannot ask for this id: cdc-relay events show can.</p>`
  return html`<section><h2>The event with this id</h2><${Loaded} of=${asked}>${(e) => html`
    <p><${State} of=${e.state} />: <${T} of=${e.why} max=${400} /></p>
    ${e.state !== 'not in the table' && html`<${Facts} of=${[
      ['Id', html`<${T} of=${e.id} max=${200} />`], ['Table', e.table && html`<${T} of=${e.table} />`],
      ['Committed', html`<${At} at=${e.committed_at} none="not known" />`], ['Next attempt', e.next_attempt && html`<${At} at=${e.next_attempt} />`],
      ['Waits behind', e.behind && html`<a href=${`#/deferred/${e.behind}`}>row ${e.behind}</a>`]]} />`}
    ${['deferred', 'dead-letters'].map((of) => {
      const rows = (e.rows ?? []).filter((r) => (r.state === 'deferred') === (of === 'deferred'))
      return rows.length > 0 && html`<${Rows} of=${of} rows=${rows} caption=${`Rows of this id: ${of}`} />`
    })}
    ${e.others?.length > 0 && html`<${Table} caption="Other rows with this id" hidden=${false} head=${['Table', 'State', 'How that is known', 'Committed']} empty=""
      rows=${e.others.map((o) => [html`<${T} of=${o.table} />`, html`<${State} of=${o.state} />`, html`<${T} of=${o.why} max=${300} />`, html`<${At} at=${o.committed_at} none="not known" />`])} />`}`}
  </${Loaded}></section>`
}

const where = (e) => (e.n ? html`<a href=${`#/${e.state === 'deferred' ? 'deferred' : 'dead-letters'}/${e.n}`}>row ${e.n}</a>` : html`<${T} of=${e.table || null} none="" />`)

function ByKey({ query: { q, ...filter } }) {
  const asked = useGet('events', { limit: 100, ...filter, key: q })
  return html`<section><h2>The events of this key, the newest first</h2><${Loaded} of=${asked}>${(data) => html`
    <${Table} caption="Events of this key, the newest first" empty="There is none that is known of."
      head=${['Committed', 'State', 'Id', 'Type', 'Key', 'Where', 'How that is known']}
      rows=${data.items.map((e) => [html`<${At} at=${e.committed_at} none="not known" />`, html`<${State} of=${e.state} />`,
        e.id ? html`<a href=${link('find', { q: e.id })}><${T} of=${e.id} max=${60} /></a>` : html`<${T} of=${e.id} />`,
        html`<${T} of=${e.type} max=${60} />`, html`<${Key} row=${e} />`, where(e), html`<${T} of=${[e.why, e.reason].filter(Boolean).join('; ') || null} max=${200} />`])} />
    ${data.more && html`<p class="muted">There are older ones. ${filter.limit ? 'Choose a time, or see cdc-relay events list.' : html`<a href=${link('find', { q, ...filter, limit: 1000 })}>Show 1,000</a>`}</p>`}
    ${data.notes?.map((n) => html`<p class="muted"><${T} of=${n} max=${400} /></p>`)}
    ${data.missing_indexes?.map((m) => html`<p>Without an index <${T} of=${m.table} /> is not searched: <${T} of=${m.why} max=${300} /></p>${m.sql.map((q) => html`<${Command} text=${q} />`)}`)}`}
  </${Loaded}></section>`
}

export function Find({ query }) {
  const submit = (e) => { e.preventDefault(); location.hash = link('find', given(e.target)) }
  return html`
    <form class="find" role="search" onSubmit=${submit} key=${JSON.stringify(query)}>
      <label class="field"><span>Id of an event, or a key</span><input type="search" name="q" required defaultValue=${query.q} autocomplete="off" spellcheck=${false} /></label>
      <button class="primary">Find</button>
      <details open=${['aggregate', 'type', 'state', 'from', 'to'].some((f) => query[f])}><summary>Only some events of a key</summary><div class="filters">
        <${Field} label="Aggregate" name="aggregate" value=${query.aggregate} /><${Field} label="Type" name="type" value=${query.type} />
        <${Select} label="State" name="state" value=${query.state ?? ''} options=${['', 'not seen', 'in flight', 'deferred', 'dead letter', 'delivered', 'not known to be sent'].map((s) => [s, s || 'any'])} />
        <${Period} filter=${query} /></div></details>
    </form>
    ${query.q ? html`<${ById} id=${query.q} /><${ByKey} query=${query} />`
      : html`<p class="muted">Both are looked for: in the outbox tables, the retry table, the dead letters, and what is in flight.</p>`}`
}
