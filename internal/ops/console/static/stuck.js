// Stuck now: the destinations that the broker refuses, and the events that others of their key wait behind.

import { html, useState } from './lib/htm-preact.js'
import { may, post, useGet } from './api.js'
import { Ago, At, Change, Loaded, Old, T, Table, bytes, count, real, things } from './parts.js'
import { jobOutcome } from './requests.js'
import { Key, link } from './rows.js'

const behind = (r) => (r.behind ? html`<a href=${link('deferred', { key_of: r.n })}>${r.behind_or_more ? 'more than ' : ''}${things(r.behind, 'event')}</a>` : 'none')

// nameOf is a destination as the filters take it: its id is that, in base64url.
const nameOf = ({ id }) => new TextDecoder().decode(Uint8Array.from(atob(id.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0)))

const Waiting = ({ of }) => {
  const text = `${of.or_more ? 'more than ' : ''}${things(of.events, 'event')}`
  return of.id ? html`<a href=${link('deferred', { destination: nameOf(of) })}>${text}</a>` : text
}

function Paused({ of, up, onProbe }) {
  return html`<article class="paused">
    <h3><${T} of=${of.destination} max=${200} /></h3>
    <p class="why"><strong>${of.reason}</strong>: <${T} of=${of.error} max=${600} /></p>
    <p>${of.events == null ? 'Its events are not counted yet' : html`<${Waiting} of=${of} /> ${of.events === 1 ? 'waits' : 'wait'}`}${of.oldest && html`, the oldest from <${At} at=${of.oldest} />`}.
      ${' '}Paused since <${At} at=${of.since} /> (<${Ago} at=${of.since} />).
      ${' '}${of.next_probe ? html`The next probe is at <${At} at=${of.next_probe} />.` : of.fix ? 'It is not probed by itself.' : up ? 'It is being probed.' : 'It is probed when the broker is back.'}</p>
    ${of.fix && html`<p><strong>What to do:</strong> <${T} of=${of.fix} max=${600} /></p>`}
    ${may() && of.id && html`<div class="buttons"><button type="button" onClick=${onProbe}>Probe now…</button></div>`}
  </article>`
}

export function Stuck({ live }) {
  const asked = useGet('destinations', undefined, 3)
  const [probe, setProbe] = useState()
  const s = live.status
  const leads = s?.role === 'leader'
  return html`<${Loaded} of=${asked}>${(data) => html`
    ${s && !leads && html`<p class="muted">Only the leader knows which destinations are paused.</p>`}
    ${leads && !s.broker.up && html`<p class="why">The broker is down: nothing is delivered, and no destination is to blame.</p>`}
    <section><h2>Paused destinations ${leads && html`<b>${count(data.total)}</b>`}</h2>
      ${data.items.length ? data.items.map((d) => html`<${Paused} key=${d.destination} of=${d} up=${s?.broker.up} onProbe=${() => setProbe(d)} />`)
        : html`<p class="muted">${!leads ? 'Not known here.' : s.broker.up ? 'None: the broker takes what is sent to it.' : 'None is known.'}</p>`}
      ${data.total > data.items.length && html`<p class="muted">And ${count(data.total - data.items.length)} more.</p>`}
    </section>
    <section><h2>Waiting for a time of their own</h2>
      <${Table} caption="Deferred events with a backoff, the soonest first" numbers=${[0, 5, 6]} empty="None."
        head=${['Number', 'Next attempt', 'Key', 'Type', 'Destination', 'Attempts', 'Behind it', 'Because']}
        rows=${(data.holding ?? []).map((r) => Object.assign([html`<a href=${`#/deferred/${r.n}`}>${r.n}</a>`, html`<${At} at=${r.next_attempt} />`, html`<${Key} row=${r} />`,
          html`<${T} of=${r.type} max=${60} />`, html`<${T} of=${r.destination} max=${80} />`, count(r.attempts), behind(r), html`<${T} of=${[r.reason, r.error_text].filter(Boolean).join(': ') || null} />`], { key: r.n }))} />
      ${data.holding_more && html`<p class="muted">There are more: <a href="#/deferred">all deferred events</a>.</p>`}
    </section>
    ${s?.deferred.refused_total > 0 && html`<section><h2>Rows that the database refuses <b>${count(s.deferred.refused_total)}</b></h2>
      <${Table} caption="Rows that the database refuses" numbers=${[3]} empty="None." head=${['Event', 'Since', 'The database says', 'Behind it']}
        rows=${s.deferred.refused.map((r) => [html`<${T} of=${r.id} />`, html`<${At} at=${r.since} />`, html`<${T} of=${r.error} max=${400} />`, count(r.behind)])} /></section>`}
    ${leads && real(s.deferred.counted_at) && html`<p class="muted">${things(s.deferred.waiting_keys, 'key')} with events that wait behind another one. The retry table and the dead letters have ${bytes(s.deferred.table_bytes)} on disk.<${Old} at=${s.deferred.counted_at} now=${s.now} /></p>`}
    ${probe && html`<${Change} title="Probe now" button="Probe" text=${html`One event of <strong><${T} of=${probe.destination} max=${200} /></strong> is sent now. If the broker takes it, the others follow.`}
      send=${(reason) => post(`destinations/${probe.id}/retry`, { reason }).then(jobOutcome)} onDone=${asked.reload} onClose=${() => setProbe()} />`}`}
  </${Loaded}>`
}
