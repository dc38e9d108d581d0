// Leader and safety: who leads, what every slot of the server keeps, what may never have been sent, what the check
// finds, how the relay is configured, and who changed what.

import { html, useState } from './lib/htm-preact.js'
import { may, post, useGet } from './api.js'
import { Ago, At, Change, Command, Dot, Facts, Field, Finding, Leader, Loaded, T, Table, bytes, count, forecast, real, span, things, visible } from './parts.js'
import { Resend } from './requests.js'
import { Period, given } from './rows.js'

const levels = { ok: 'ok', warn: 'warn', fail: 'bad' }

function Roles({ s }) {
  return html`<section><${Facts} of=${[
    ['This relay', s.role === 'leader' ? 'leads' : s.role === 'standby' ? 'stands by' : 'neither leads nor stands by'],
    ['Leader', html`<${Leader} of=${s.leader} />`],
    ['Stand by', s.role === 'leader' && (s.standbys ? html`${s.standbys.map((r, i) => html`${i > 0 && ', '}<${Leader} of=${r} />`)}${s.standbys.length ? '' : 'none'} <small class="muted">as PostgreSQL sees it</small>` : 'not known')],
    ['Runs since', html`<${At} at=${s.started_at} />`], ['Version', visible(s.version)],
    ['New sessions', s.totals.stream_reconnects != null && `${things(s.totals.stream_reconnects, 'time')} with PostgreSQL`],
    ['Reconnects', s.totals.broker_reconnects != null && `${things(s.totals.broker_reconnects, 'time')} to the broker`],
    ['Holds delivery back', s.waiting_for_standby.length > 0 && html`standby <${T} of=${s.waiting_for_standby.join(', ')} />`],
    ['Crash repeats', things(s.unreported_confirmed, 'event')],
  ]} /></section>`
}

function Slots() {
  const asked = useGet('slots', undefined, 5)
  return html`<section><h2>Slots of the server</h2><${Loaded} of=${asked}>${(data) => html`
    <${Table} caption="Logical slots, the relay's own first" empty="None is known yet." numbers=${[3, 4]}
      head=${['Slot', 'Database', 'Read', 'Behind', 'Keeps', 'Forecast', 'Status', 'Asked']}
      rows=${data.items.map((s) => Object.assign([html`<${T} of=${s.name} />${s.own && html` <span class="muted">ours</span>`}`, html`<${T} of=${s.database} />`,
        !real(s.checked_at) ? 'not known' : s.active ? 'by a process' : 'by nobody', real(s.checked_at) ? `${bytes(s.lag_bytes)}${s.lag_seconds == null ? '' : ', ' + span(s.lag_seconds)}` : 'not known', bytes(real(s.checked_at) ? s.retained_bytes : null), forecast(s),
        `${s.wal_status || 'not known'}${s.failover ? ', failover' : ''}${s.invalidation_reason ? ', ' + s.invalidation_reason : ''}`, html`<${Ago} at=${s.checked_at} />`], { key: s.name }))} />
    ${data.items.filter((s) => s.fix).map((s) => html`<p><strong><${T} of=${s.name} /></strong>:</p><${Command} text=${s.fix} />`)}
    ${data.total > data.items.length && html`<p class="muted">The server has ${count(data.total)}.</p>`}`}</${Loaded}></section>`
}

function Unsent({ s }) {
  const asked = useGet('sent')
  const [doing, setDoing] = useState() // resend: a choice of rows; close: a gap
  const button = (text, what) => may() && html`<button type="button" onClick=${() => setDoing(what)}>${text}…</button>`
  return html`<section><h2>Rows that may never have been sent</h2><${Loaded} of=${asked}>${(data) => {
    const unsent = data.unsent.filter((u) => u.rows > 0)
    return html`
      ${!data.unsent_known && html`<p class="muted">Rows are not counted: it needs the column outbox.transaction, and the leader.</p>`}
      ${data.unsent_known && unsent.length === 0 && html`<p>None: every row that the slot is past is known to be sent.</p>`}
      ${unsent.map((u) => html`<p><${Dot} tone="warn" />${u.or_more ? 'More than ' : ''}${things(u.rows, 'row')} of <${T} of=${u.table} />.</p>`)}
      ${unsent.length > 0 && html`<${Command} text=${data.unsent_command} /><div class="buttons">${button('Resend all unsent', { what: 'what is not known to be sent', resend: { unsent: true } })}</div>`}
      ${(data.gaps ?? []).map((g) => html`<p><${Dot} tone="warn" />Gap ${g.gap}, accepted <${At} at=${g.accepted_at} /> (<${T} of=${g.reason || null} none="no reason given" />): from ${visible(g.from_lsn)} to ${visible(g.until_lsn)}.</p><${Command} text=${g.command} />
        <div class="buttons">${button(`Resend gap ${g.gap}`, { what: `gap ${g.gap}`, resend: { gap: g.gap } })}${button(`Close gap ${g.gap}`, { close: g.gap })}</div>`)}
      ${s?.unheld_slots?.map((u) => html`<p><${Dot} tone="warn" />Slot <${T} of=${u.name} /> is held by nobody; there wait ${u.or_more ? 'at least ' : ''}${things(u.deferred, 'deferred event')} and ${things(u.dead_letters, 'dead letter')}, and it keeps ${bytes(u.retained_bytes)}${u.lost ? ', and it is lost' : ''}.</p>`)}
      <${Table} caption="What is recorded as sent" hidden=${false} numbers=${[2]} head=${['Table', 'Recorded last', 'Records']} empty=""
        rows=${(data.tables ?? []).map((t) => [html`<${T} of=${t.table} />`, html`<${At} at=${t.last_recorded_at} />`, count(t.records)])} />`
  }}</${Loaded}>
    ${doing?.resend && html`<${Resend} choice=${doing.resend} what=${doing.what} kind=${s?.broker.kind} onDone=${asked.reload} onClose=${() => setDoing()} />`}
    ${doing?.close && html`<${Change} title=${`Close gap ${doing.close}`} button="Close it" danger text="By your word the rows of this gap need not be sent: nothing is sent, and nobody is reminded of them again."
      send=${(reason) => post('resend', { gap: doing.close, none: true, reason }).then(() => `Gap ${doing.close} is closed.`)} onDone=${asked.reload} onClose=${() => setDoing()} />`}
  </section>`
}

function Check() {
  const asked = useGet('check')
  const [all, setAll] = useState(false)
  return html`<section><h2>Check</h2><${Loaded} of=${asked}>${(data) => {
    const found = data.findings.filter((f) => all || f.level !== 'ok')
    const fine = data.findings.filter((f) => f.level === 'ok').length
    return html`
      <p>${things(fine, 'point')} of ${count(data.findings.length)} ${fine === 1 ? 'is' : 'are'} fine. Asked <${At} at=${data.checked_at} />.
        <span class="buttons inline"><button type="button" class="small" onClick=${asked.reload} disabled=${asked.loading}>Check again</button>
        <button type="button" class="small" aria-pressed=${all} onClick=${() => setAll(!all)}>Show all</button></span></p>
      ${found.map((f) => html`<article class="finding" key=${f.name}><h3><span class=${'level word ' + (levels[f.level] ?? 'warn')}>${f.level}</span>${visible(f.name)}</h3>
        <p><${T} of=${f.detail} max=${1000} />${f.cause && html` <span class="muted"><${T} of=${f.cause} max=${600} /></span>`}</p>${f.fix && html`<${Command} text=${f.fix} />`}</article>`)}`
  }}</${Loaded}></section>`
}

// plain is a sentence of the documentation without its Markdown.
const plain = (text) => visible(text).replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').replaceAll('`', '')

function Configuration() {
  const asked = useGet('config')
  const [words, setWords] = useState('')
  const [all, setAll] = useState(false)
  return html`<section><h2>Configuration</h2><${Loaded} of=${asked}>${(data) => {
    const rows = data.items.filter((k) => (all || words || !k.default) && (!words || (k.key + ' ' + k.does).toLowerCase().includes(words.toLowerCase())))
    return html`
      <div class="filters"><${Field} label="Key or word" type="search" value=${words} onInput=${(e) => setWords(e.target.value)} />
        <label class="check"><input type="checkbox" checked=${all} onChange=${(e) => setAll(e.target.checked)} /> with defaults</label></div>
      <${Table} caption="Effective configuration" empty="No key has this." head=${['Key', 'Value', 'From', 'What it does']}
        rows=${rows.map((k) => Object.assign([html`<code>${visible(k.key)}</code>`, html`<code><${T} of=${k.value} max=${200} /></code>`, html`<${T} of=${k.from} />`,
          html`${k.more ? html`<details><summary>${plain(k.does)}</summary>${plain(k.more)}</details>` : plain(k.does)}${k.values && html` <span class="muted">${plain(k.values)}</span>`}`], { key: k.key }))} />`
  }}</${Loaded}></section>`
}

function Audit() {
  const [filter, setFilter] = useState({})
  const asked = useGet('audit', { ...filter, limit: 50 }, 10)
  const submit = (e) => { e.preventDefault(); setFilter(given(e.target)) }
  return html`<section><h2>Audit</h2>
    <form class="filters" role="search" aria-label="Audit" onSubmit=${submit}><${Field} label="Who" name="who" /><${Field} label="Action" name="action" /><${Field} label="Number of a row" name="n" inputmode="numeric" /><${Period} filter=${filter} />
      <div class="buttons"><button>Filter</button></div></form>
    <${Loaded} of=${asked}>${(data) => html`
      <${Table} caption="Who changed what, the newest first" empty="Nobody has changed anything." head=${['When', 'Who', 'Action', 'Row', 'Why', 'Result']}
        rows=${data.items.map((a) => Object.assign([html`<${At} at=${a.at} />`, html`<${T} of=${a.who} max=${80} />`, html`<${T} of=${a.action} />`, a.n || '', html`<${T} of=${a.why || null} none="" max=${200} />`, html`<${T} of=${a.result || null} none="" max=${200} />`], { key: a.seq }))} />
      <div class="buttons">${filter.cursor && html`<button type="button" onClick=${() => setFilter({ ...filter, cursor: '' })}>The newest</button>`}
        ${data.next && html`<button type="button" onClick=${() => setFilter({ ...filter, cursor: data.next })}>Older</button>`}</div>`}</${Loaded}></section>`
}

export function Safety({ live }) {
  const s = live.status
  return html`
    ${s ? html`<${Roles} s=${s} />` : html`<p class="muted">Waiting for the relay…</p>`}
    ${s?.finding && html`<section class="attention"><h2>Open finding ${s.finding}</h2><${Finding} s=${s} /></section>`}
    <${Slots} /><${Unsent} s=${s} /><${Check} /><${Configuration} /><${Audit} />
    ${s?.log.length > 0 && html`<section><h2>Last warnings of the log</h2><pre tabindex="0" aria-label="Log">${s.log.map((l) => visible(l)).join('\n')}</pre></section>`}`
}
