// Flow: one sentence, PostgreSQL → relay → broker, the last hour as charts, and what happened when.

import { html, useEffect, useRef, useState } from './lib/htm-preact.js'
import { Ago, At, Dot, Facts, Finding, Leader, Old, T, Table, bytes, count, cut, forecast, rate, real, span, things, visible } from './parts.js'

// The tone of a state: it works, it waits, somebody has to act.
export const tones = {
  streaming: 'ok', idle: 'ok', standby: 'ok', starting: 'warn', stopping: 'warn', 'catching up': 'warn',
  'destination paused': 'warn', deferring: 'warn', 'waiting for postgres': 'bad', 'broker down': 'bad', stopped: 'bad',
}

const names = { rabbitmq: 'RabbitMQ', kafka: 'Kafka', stdout: 'Standard output' }
export const brokerName = (s) => names[s.broker.kind] ?? s.broker.kind

// limitText is how much WAL the slot keeps and how soon it is lost, if that is known.
function limitText(slot) {
  if (!real(slot.checked_at)) return 'how much WAL is kept is not known'
  const kept = `${bytes(slot.retained_bytes)} of WAL kept`
  if (slot.wal_status === 'lost') return 'the slot is lost'
  if (slot.safe_wal_bytes == null) return kept
  if (slot.safe_wal_bytes <= 0) return `${kept}; the slot is lost at the next checkpoint`
  return slot.safe_wal_seconds == null ? `${kept}, ${bytes(slot.safe_wal_bytes)} to the limit` : `${kept}, ${span(slot.safe_wal_seconds)} to the limit`
}

// endangered is true when the server is about to give up the slot's WAL: the bounds are those of the command status.
function endangered({ wal_status: wal, retained_bytes: kept, safe_wal_bytes: safe, safe_wal_seconds: seconds }) {
  if (wal === 'lost' || wal === 'unreserved') return true
  return safe != null && (safe <= 0 || kept >= 0.7 * (kept + safe) || (seconds != null && seconds < 900))
}

// sentence says in words how it is. short changes only with the state: it is read aloud.
export function sentence(s) {
  const why = visible(cut(s.why ?? '', 400))
  const { slot } = s
  const behind = slot.lag_seconds > 1 || s.rates.latency_p50_seconds == null ? slot.lag_seconds : s.rates.latency_p50_seconds
  const reason = why && ': ' + why
  let text
  switch (s.state) {
    case 'streaming': text = behind == null ? 'Streaming' : `Streaming, ${span(behind)} behind`; break
    case 'idle': text = `Idle: nothing ${real(s.deferred.counted_at) ? 'waits' : 'is in flight'}${s.dead_letters.open ? `, ${things(s.dead_letters.open, 'dead letter')} open` : ''}`; break
    case 'catching up': text = `Catching up: ${span(slot.lag_seconds)} and ${bytes(slot.lag_bytes)} behind, ${rate(s.rates.published_per_second)}`; break
    case 'broker down': {
      const since = s.broker.down_since && ` for ${span((new Date(s.now) - new Date(s.broker.down_since)) / 1000)}`
      text = `Broker down${since || ''}; ${limitText(slot)}`
      break
    }
    case 'destination paused':
      text = `${things(s.broker.paused_total, 'destination')} paused, ${things(s.deferred.events, 'event')} deferred; everything else flows`
      break
    case 'deferring': text = why ? `Deferring${reason}` : `Deferring: ${things(s.deferred.events, 'event')} will be sent again`; break
    case 'standby': text = `Standing by${reason}`; break
    case 'waiting for postgres': text = `Waiting for PostgreSQL${reason}`; break
    default: text = s.state[0].toUpperCase() + s.state.slice(1) + reason
  }
  const danger = endangered(slot) && s.state !== 'broker down'
  if (danger) text += `. In danger: ${limitText(slot)}`
  return { text: text + '.', why: s.state === 'broker down' || (s.state === 'destination paused' && s.broker.paused_total === 1) ? why : '', tone: danger ? 'bad' : tones[s.state] ?? 'warn', short: s.state + (danger ? ', the slot is in danger' : '') }
}

const Node = ({ name, tone, word, facts }) => html`<section class="node">
  <h2><${Dot} tone=${tone} />${name}</h2><p class=${tone === 'ok' ? 'muted' : 'word ' + tone}>${word}</p><${Facts} of=${facts} />
</section>`

const Arrow = ({ text, tone }) => html`<div class=${'arrow ' + tone}><span>${text}</span></div>`

function Way({ s }) {
  const { slot, broker, in_flight: flight, deferred, dead_letters: dead } = s
  const leads = s.role === 'leader'
  const known = real(slot.checked_at)
  const old = (at) => html`<${Old} at=${at} now=${s.now} />`
  const counted = (table, n) => html`${count(real(table.counted_at) ? n : null)}${old(table.counted_at)}`
  const away = s.state === 'waiting for postgres'
  const pg = away || endangered(slot) ? 'bad' : 'ok'
  return html`<div class="way">
    <${Node} name="PostgreSQL" tone=${pg} word=${pg === 'ok' ? 'answers' : away ? 'not reached' : limitText(slot)} facts=${[
      ['Slot', html`<${T} of=${slot.name} />`],
      ['Keeps WAL', html`${bytes(known ? slot.retained_bytes : null)}${old(slot.checked_at)}`],
      ['Limit', html`${forecast(slot)}${old(slot.checked_at)}`],
      ['Read by', !known || away ? 'not known' : slot.active ? 'a process' : 'nobody'],
    ]} />
    <${Arrow} text=${`${known ? bytes(slot.lag_bytes) + ' behind' : 'not known'}`} tone=${!away && (slot.active || !known) ? 'ok' : 'bad'} />
    <${Node} name="Relay" tone=${s.state === 'stopped' ? 'bad' : tones[s.state] === 'warn' && !/^de/.test(s.state) ? 'warn' : 'ok'} word=${leads ? 'leads' : s.role === 'standby' ? 'stands by' : s.state} facts=${[
      ['In flight', `${things(flight.events, 'event')}, ${bytes(flight.bytes)}`],
      ['Oldest', html`<${Ago} at=${flight.oldest_unsettled} now=${new Date(s.now)} none="nothing waits" />`],
      ['Deferred', html`<a href="#/deferred">${counted(deferred, deferred.events)}</a>`],
      ['Dead letters', html`<a href="#/dead-letters?state=open">${counted(dead, dead.open)}</a>`],
    ]} />
    <${Arrow} text=${rate(s.rates.published_per_second)} tone=${broker.up ? 'ok' : 'bad'} />
    <${Node} name=${brokerName(s)} tone=${!broker.up ? 'bad' : broker.paused_total ? 'warn' : 'ok'} word=${broker.up && broker.paused_total ? things(broker.paused_total, 'destination') + ' paused' : broker.up ? 'connected' : broker.was_up ? 'down' : 'not reached yet'} facts=${[
      ['Unanswered', things(broker.pending_confirms, 'message')],
      ['p50, p99', `${span(s.rates.latency_p50_seconds)}, ${span(s.rates.latency_p99_seconds)}`],
      ['Paused', html`<a href="#/stuck">${leads || broker.paused_total ? things(broker.paused_total, 'destination') : 'not known'}</a>`],
      ['Last confirm', html`<${Ago} at=${s.totals.last_confirm} now=${new Date(s.now)} none="none yet" />`],
    ]} />
  </div>`
}

// The charts: a title, and its lines by the name that the API has.
const charts = [
  { title: 'Published', lines: [['published_per_second', 'rate']], show: rate },
  { title: 'Commit to confirm', lines: [['latency_p50_seconds', 'p50'], ['latency_p99_seconds', 'p99']], show: span },
  { title: 'Lag in time', lines: [['lag_seconds', 'lag']], show: span },
  { title: 'Lag in bytes', lines: [['lag_bytes', 'lag']], show: bytes },
  { title: 'Deferred', lines: [['deferred', 'events']], show: (n) => (n % 1 ? '' : count(n)) },
  { title: 'Retained WAL', lines: [['retained_bytes', 'WAL'], ['limit_bytes', 'limit']], show: bytes },
]

const colours = () => Object.fromEntries(['accent', 'second', 'muted', 'line', 'bad', 'fill'].map((n) => [n, getComputedStyle(document.documentElement).getPropertyValue('--' + n).trim()]))

const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize)

// Chart is one canvas, and the same in words for those who do not see it.
function Chart({ title, lines, show, points }) {
  const box = useRef()
  const plot = useRef()
  const [hover, setHover] = useState(null)
  const drawn = lines.filter(([name]) => points[name]?.some((v) => v != null))
  const key = drawn.map(([name]) => name).join()
  const data = [points.at, ...drawn.map(([name]) => points[name])]
  useEffect(() => {
    const dark = matchMedia('(prefers-color-scheme: dark)')
    const make = () => {
      plot.current?.destroy()
      const c = colours()
      const of = { limit_bytes: { stroke: c.bad, dash: [4, 4] }, latency_p99_seconds: { stroke: c.second } }
      const axis = { stroke: c.muted, grid: { stroke: c.line, width: 1 }, ticks: { show: false }, font: `${0.79 * rem()}px system-ui, sans-serif`, gap: 4 }
      plot.current = new uPlot({
        width: box.current.clientWidth, height: box.current.clientHeight, legend: { show: false }, padding: [8, 18, 0, 0],
        cursor: { sync: { key: 'hour' }, drag: { x: false, y: false }, y: false, points: { size: 6 } },
        scales: { x: { range: (u, low, high) => [Math.min(low, high - 300), high] }, y: { range: (u, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [{ ...axis, size: 1.6 * rem(), space: 5 * rem(), values: (u, at) => at.map((t) => new Date(t * 1000).toTimeString().slice(0, 5)) },
          { ...axis, size: 4.4 * rem(), space: 2.4 * rem(), values: (u, list) => list.map((v) => (v === 0 ? '0' : show(v))) }],
        series: [{}, ...drawn.map(([name], i) => ({ stroke: c.accent, fill: i === 0 ? c.fill : undefined, width: 1.5, points: { show: false }, spanGaps: false, ...of[name] }))],
        hooks: { setCursor: [(u) => setHover(u.cursor.idx ?? null)] },
      }, data, box.current)
    }
    make()
    dark.addEventListener('change', make)
    const size = new ResizeObserver(() => plot.current.setSize({ width: box.current.clientWidth, height: box.current.clientHeight }))
    size.observe(box.current)
    return () => { size.disconnect(); dark.removeEventListener('change', make); plot.current.destroy(); plot.current = undefined }
  }, [key])
  useEffect(() => { plot.current?.setData(data) }, [points])
  const at = hover ?? points.at.length - 1
  const values = drawn.every(([name]) => points[name][at] == null) ? 'not known' : drawn.map(([name, label]) => `${drawn.length > 1 ? label + ' ' : ''}${show(points[name][at])}`).join(', ')
  const words = drawn.map(([name, label]) => {
    const known = points[name].filter((v) => v != null)
    return `${label}: now ${show(known.at(-1))}, lowest ${show(Math.min(...known))}, highest ${show(Math.max(...known))}`
  }).join('; ')
  return html`<figure class="chart">
    <figcaption>${title}<b>${values}</b>${hover != null && points.at[at] && html`<span class="muted"><${At} at=${new Date(points.at[at] * 1000).toISOString()} /></span>`}</figcaption>
    <div ref=${box} role="img" aria-label=${`${title}, the last hour. ${words || 'Nothing is known yet.'}`}></div>
  </figure>`
}

// attention is what somebody should look at, though it flows.
function Attention({ s }) {
  const rows = []
  if (s.finding) rows.push(html`<p>The relay has stopped, and an operator must decide (finding ${s.finding}):</p><${Finding} s=${s} />`)
  if (s.guard?.full) rows.push(html`<p>The disk guard is full: guard.max_bytes is reached, and the slot keeps WAL until the broker is back.</p>`)
  else if (s.guard?.active) rows.push(html`<p>The disk guard defers events while the broker is away: ${count(s.guard.deferred)} so far.</p>`)
  for (const r of s.deferred.refused) rows.push(html`<p>The database refuses to defer event <${T} of=${r.id} />: <${T} of=${r.error} />. It is tried again; ${things(r.behind, 'event')} of its key wait.</p>`)
  if (s.waiting_for_standby.length) rows.push(html`<p>Delivery waits for standby <${T} of=${s.waiting_for_standby.join(', ')} />.</p>`)
  if (s.wal_held_by.length) rows.push(html`<p>The slot keeps WAL for ${things(s.wal_held_by.length, 'open transaction')}; the oldest is of <${T} of=${s.wal_held_by[0].role} />, ${s.wal_held_by[0].pid ? `process ${s.wal_held_by[0].pid}` : html`prepared as <${T} of=${s.wal_held_by[0].gid} />`}.</p>`)
  if (s.retention.error) rows.push(html`<p>Retention: delivered rows stay. <${T} of=${s.retention.error} /></p>`)
  return rows.length ? html`<section class="attention"><h2>Needs a look</h2>${rows}</section>` : null
}

const markTones = { ok: 'ok', info: 'none', bad: 'bad' }

export function Flow({ live }) {
  const { status: s, points, marks } = live
  if (!s) return html`<p class="muted">Waiting for the relay…</p>`
  const says = sentence(s)
  return html`
    <p class=${'sentence ' + says.tone}>${says.text}</p>
    ${s.role === 'standby' && html`<p class="why">The leader is <${Leader} of=${s.leader} />. It knows more than this standby does.</p>`}
    ${says.why && html`<p class="why"><bdi>${says.why}</bdi></p>`}
    <${Way} s=${s} />
    <${Attention} s=${s} />
    <section><h2>The last hour</h2>
      ${points?.at.length > 1 ? html`<div class="charts">${charts.map((c) => html`<${Chart} key=${c.title} ...${c} points=${points} />`)}</div>`
        : html`<p class="muted">The charts begin within twenty seconds.</p>`}
    </section>
    <section><h2>What happened</h2>
      <${Table} caption="What happened, the newest first" head=${['When', 'What', 'In words']} empty="Nothing since the relay started."
        rows=${[...marks].reverse().slice(0, 50).map((m) => [html`<${At} at=${m.at} />`, html`<span class="kind"><${Dot} tone=${markTones[m.level] ?? 'none'} />${m.kind}</span>`, html`<${T} of=${m.text} max=${500} />`])} />
    </section>`
}
