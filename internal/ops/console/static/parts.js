// The parts that all screens are made of: texts that nobody is trusted with, numbers, times, tables, dialogs.
// Every text goes through a text node: nothing here makes markup of what an event or a broker says.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from './lib/htm-preact.js'
import { useGet } from './api.js'

// What cannot be seen, or turns the text around it: control characters, bidi controls, zero width, fillers, variation
// selectors, tags, half characters. Line feed and tab stay.
const unseen = /[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufff9-\ufffb]|\p{Default_Ignorable_Code_Point}|\p{Cs}/gu

// visible names such characters: [U+202E].
export const visible = (text) => String(text).replace(unseen, (c) => `[U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}]`)

// cut is at most so many characters, none of them in half.
export const cut = (text, most) => (text.length <= most ? text : text.slice(0, most).replace(/[\ud800-\udbff]$/, '') + '…')

// T is a text of an event, a broker or a server: isolated, so that it turns nothing around it.
export const T = ({ of, max = 160, none = '–' }) => {
  if (of == null) return html`<span class="none" title="NULL">${none}</span>`
  if (of === '') return html`<span class="none">empty</span>`
  const all = visible(cut(String(of), 2000))
  return html`<bdi title=${all.length > max ? all : undefined}>${cut(all, max)}</bdi>`
}

const grouped = new Intl.NumberFormat('en-US')
export const count = (n) => (n == null ? 'not known' : grouped.format(n))
export const things = (n, one, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`
export const rate = (n) => `${n == null ? '–' : n < 10 && n > 0 ? n.toFixed(1) : count(Math.round(n))}/s`

export function bytes(n) {
  if (n == null) return 'not known'
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB']
  let i = 0
  for (; Math.abs(n) >= 1000 && i < units.length - 1; i++) n /= 1000
  return `${i && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[i]}`
}

// span is a time in seconds, in words that are short.
export function span(s) {
  if (s == null) return 'not known'
  if (s === 0) return '0 ms'
  if (s < 0.01) return `${(s * 1000).toFixed(1)} ms`
  if (s < 1) return `${Math.round(s * 1000)} ms`
  if (s < 90) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`
  if (s < 90 * 60) return `${Math.round(s / 60)} min`
  if (s < 36 * 3600) return `${Math.floor(s / 3600)} h${s < 10 * 3600 && Math.floor(s / 60) % 60 ? ` ${Math.floor(s / 60) % 60} min` : ''}`
  return `${Math.round(s / 86400)} days`
}

// forecast is how much more WAL may be written before a slot is lost, and how soon that is.
export function forecast({ checked_at: at, wal_status: wal, safe_wal_bytes: safe, safe_wal_seconds: seconds }) {
  if (!real(at)) return 'not known'
  if (wal === 'lost') return 'lost'
  if (safe == null) return 'no limit but the disk'
  return safe <= 0 ? 'lost at the next checkpoint' : `${bytes(safe)} left${seconds == null ? '' : `, about ${span(seconds)}`}`
}

export const real = (at) => at && !String(at).startsWith('0001-') // the zero time means: not yet
const pad = (n) => String(n).padStart(2, '0')

export function clock(at) {
  const d = new Date(at)
  const day = `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`
  const time = `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`
  return d.toDateString() === new Date().toDateString() ? time : `${day} ${time}`
}

const utc = (at) => new Date(at).toISOString().replace('T', ' ').replace(/(\.\d+)?Z$/, ' UTC')

// At is a moment in the reader's zone; its title has it in UTC.
export const At = ({ at, none = '–' }) => (real(at) ? html`<time datetime=${at} title=${utc(at)}>${clock(at)}</time>` : html`<span class="none">${none}</span>`)

// Ago is how long ago a moment was.
export const Ago = ({ at, now = Date.now(), none = '–' }) => {
  if (!real(at)) return html`<span class="none">${none}</span>`
  const s = Math.max(0, Math.floor((now - new Date(at)) / 1000))
  return html`<time datetime=${at} title=${`${clock(at)} here, ${utc(at)}`}>${s < 1 ? 'now' : s < 90 ? `${s} s ago` : `${span(s)} ago`}</time>`
}

// Old says of what time something is, if that is a while ago.
export const Old = ({ at, now }) => (real(at) && new Date(now) - new Date(at) > 15_000 ? html` <small class="muted">as of <${At} at=${at} /></small>` : null)

// Copy puts a text into the clipboard. Without TLS a browser offers only the old way.
export function Copy({ text, what = 'Copy' }) {
  const [done, set] = useState('')
  const copy = async () => {
    try {
      if (navigator.clipboard) await navigator.clipboard.writeText(text)
      else {
        const area = document.createElement('textarea')
        area.value = text
        document.activeElement.after(area) // in the dialog that is open, if one is
        area.select()
        const copied = document.execCommand('copy')
        area.remove()
        if (!copied) throw new Error('refused')
      }
      set('Copied')
    } catch { set('The browser refuses') }
    setTimeout(() => set(''), 1500)
  }
  return html`<button type="button" class="small" onClick=${copy}>${done || what}</button>`
}

// Command is a line to run elsewhere, to copy: not if a copy would have what is not seen, or run before somebody reads it.
export const Command = ({ text }) => html`<div class="command"><code>${visible(text)}</code>${visible(text) === text && !/\n/.test(text) && html`<${Copy} text=${text} />`}</div>`

// Finding is what an operator must decide: the whole sentence, and the commands in it with which that is done.
const commands = /cdc-relay (?:recover(?: --same-data)?(?![\w-]| -)|accept ([0-9a-f]+)(?: --(?:new-slot|same-data|copy)| --delivered unknown| --(?:skip-rows|skip-messages|events) (?:'[^']*'(?:\\''[^']*')*|[\w.@:/-]+))*(?=$|[;,)]| \())/g
export const Finding = ({ s }) => html`<p><bdi>${visible(s.why)}</bdi></p>
  ${[...new Set([...s.why.matchAll(commands)].filter(([, id]) => !id || id === s.finding).map(([line]) => line))].map((line) => html`<${Command} text=${line} />`)}`

export const Fault = ({ problem }) => (problem ? html`<p class="fault" role="alert">${visible(problem.message)}</p>` : null)

// Loaded shows what a GET has brought, what went wrong, and how old it is by now: not every answer is asked for again.
export function Loaded({ of, children }) {
  const old = of.data && (of.problem || Date.now() - of.at > 60_000)
  return html`
    <${Fault} problem=${of.problem} />
    ${(old || of.problem) && html`<p class="muted">${old && html`Shown is the answer of <${At} at=${new Date(of.at).toISOString()} />. `}
      <button type="button" class="small" onClick=${of.reload} disabled=${of.loading}>Ask again</button></p>`}
    ${of.data ? children(of.data) : of.loading && html`<p class="muted">Loading…</p>`}`
}

// Table has a caption, a head and rows; without rows it is one sentence. A row is a list of cells.
export function Table({ caption, head, rows, empty, hidden = true, numbers = [] }) {
  if (!rows.length) return html`<p class="muted">${empty}</p>`
  const kind = (i) => (numbers.includes(i) ? 'n' : undefined)
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <caption class=${hidden ? 'sr' : ''}>${caption}</caption>
    <thead><tr>${head.map((h, i) => html`<th scope="col" class=${kind(i)}>${h}</th>`)}</tr></thead>
    <tbody>${rows.map((cells) => html`<tr key=${cells.key}>${cells.map((c, i) => html`<td class=${kind(i)} data-label=${head[i]}>${c}</td>`)}</tr>`)}</tbody>
  </table></div>`
}

// Leader names the relay that leads, and links it where its admin.advertise says how.
export function Leader({ of }) {
  const there = /^https?:\/\//.test(of?.address ?? '')
  return html`<${T} of=${of?.name || null} none="not known" />${there && html` <a href=${of.address} rel="noopener noreferrer"><${T} of=${of.address} /></a>`}`
}

// Facts are names with values; one without a value is left out.
export const Facts = ({ of }) => html`<dl class="facts">${of.filter(([, v]) => v != null && v !== false && v !== '').map(([k, v]) => html`<div><dt>${k}</dt><dd>${v}</dd></div>`)}</dl>`

// Dot is a state's colour, for those who see it: the word stands next to it.
export const Dot = ({ tone }) => html`<span class=${'dot ' + tone} aria-hidden="true"></span>`

// Dialog is the browser's: it keeps the focus, Esc closes it, and the focus goes back.
export function Dialog({ title, onClose, children }) {
  const box = useRef()
  useLayoutEffect(() => {
    const dialog = box.current
    dialog.addEventListener('close', onClose)
    dialog.showModal()
    return () => {
      dialog.removeEventListener('close', onClose)
      dialog.close()
    }
  }, [])
  return html`<dialog ref=${box} aria-labelledby="dialog-title">
    <h2 id="dialog-title">${title}</h2>${children}
  </dialog>`
}

// Field is an input with its label. Its value is what it begins with, unless onInput follows it: what somebody
// types meanwhile stays.
export const Field = ({ label, hint, value, ...input }) => html`<label class="field"><span>${label}</span><input autocomplete="off" spellcheck=${false} ...${input} ...${input.onInput ? { value } : { defaultValue: value }} />${hint && html`<small>${hint}</small>`}</label>`

export const Select = ({ label, options, value, ...rest }) => html`<label class="field"><span>${label}</span><select ...${rest}>${options.map(([v, text]) => html`<option value=${v} selected=${v === value}>${text}</option>`)}</select></label>`

// Change asks for a reason, unless none is kept, and then for the change: send(reason, form) gives what is said when it
// is done, beside the audit's entry of it.
export function Change({ title, text, button, danger, children, send, onClose, onDone, ready = true, reason = true }) {
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState()
  const [said, setSaid] = useState()
  const last = useRef()
  const why = useRef()
  const audit = useGet(reason ? 'audit' : null, { limit: 20 }, 2)
  const before = useRef() // the number of the newest entry
  before.current ??= audit.data && (audit.data.items[0]?.seq ?? 0)
  const noted = said && audit.data?.items.find((a) => a.seq > before.current && a.why === why.current)
  useEffect(() => { if (said) last.current.focus() }, [said])
  const submit = async (e) => {
    e.preventDefault()
    if (!ready) return // a field has just changed what is asked for
    const form = Object.fromEntries(new FormData(e.target))
    why.current = form.reason?.trim()
    before.current ??= 0 // the audit is not read yet: any entry with this reason
    setBusy(true)
    setProblem()
    try {
      const done = await send(why.current, form)
      onDone?.()
      if (done) setSaid(done)
      else onClose()
    } catch (err) { setProblem(err) }
    setBusy(false)
  }
  return html`<${Dialog} title=${title} onClose=${onClose}>
    ${said ? html`<p role="status">${said}</p>
      ${noted && html`<p class="muted">In the audit: <${At} at=${noted.at} />, <${T} of=${noted.who} max=${80} />, ${visible(noted.action)}${noted.n > 0 && ` of row ${noted.n}`}${noted.result && html`: <${T} of=${noted.result} max=${200} />`}</p>`}
      <div class="buttons"><button type="button" ref=${last} onClick=${onClose}>Close</button></div>` : html`
    <form onSubmit=${submit}>
      ${text && html`<p>${text}</p>`}
      ${children}
      ${reason && html`<${Field} label="Reason" name="reason" required pattern=".*\\S.*" maxlength="1000" hint="It is kept in the audit, with who asked and when." />`}
      <${Fault} problem=${problem} />
      <div class="buttons"><button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class=${danger ? 'danger' : 'primary'} disabled=${busy || !ready}>${busy ? 'Asking…' : button}</button></div>
    </form>`}
  </${Dialog}>`
}

// pretty indents JSON without changing a character of its values: a number that is too long for a browser stays
// as it was sent. Other text, and JSON that is nested too deeply to be indented, is given back as it is.
export function pretty(text) {
  try { JSON.parse(text) } catch { return text }
  const out = []
  let depth = 0, last = '', size = 0
  const line = () => '\n' + '  '.repeat(depth)
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const opened = last === '{' || last === '['
    if (token === '}' || token === ']') {
      depth--
      out.push(opened ? '' : line(), token)
    } else out.push(opened || last === ',' ? line() : last === ':' ? ' ' : '', token)
    if ((token === '{' || token === '[') && ++depth > 100) return text
    if ((size += token.length + 2 * depth) > Math.max(4 * text.length, shown)) return text
    last = token
  }
  return out.join('')
}

const shown = 64_000 // characters of a payload, before somebody asks for all

// Content is a payload or headers as the API has them: text, base64, hidden, cut.
export function Content({ of, name }) {
  const [all, setAll] = useState(false)
  const raw = of?.text ?? of?.base64 ?? ''
  const whole = useMemo(() => (of?.text == null ? raw : pretty(raw)), [raw])
  const short = whole.length > shown && !all
  const seen = useMemo(() => visible(short ? cut(whole, shown) : whole), [whole, short])
  if (!of) return html`<p class="muted">NULL</p>`
  if (of.hidden) return html`<p class="muted">Not shown: admin.show_payloads is off.</p>`
  if (raw === '') return html`<p class="muted">Empty.</p>`
  return html`
    <div class="content-head"><${Copy} text=${raw} what=${'Copy ' + name} />
      ${of.text == null && html`<span class="muted">Not UTF-8: shown as base64.</span>`}
      ${of.cut && html`<span class="muted">There is more than the API shows.</span>`}
      ${short && html`<button type="button" class="small" onClick=${() => setAll(true)}>Show all ${count(whole.length)} characters</button>`}
    </div>
    <pre tabindex="0" aria-label=${name}><bdi>${seen}</bdi></pre>`
}
