// The frame: who looks, which screen, what is known of the relay now, and for how long it has been silent.

import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from './lib/htm-preact.js'
import { close, get, listen, onEnd, session } from './api.js'
import { Dot, Fault, Field, span, visible } from './parts.js'
import { Flow, sentence, tones } from './flow.js'
import { Stuck } from './stuck.js'
import { DeadLetters } from './rows.js'
import { Find } from './find.js'
import { Safety } from './safety.js'

const screens = [
  ['flow', 'Flow', Flow],
  ['stuck', 'Stuck now', Stuck],
  ['dead-letters', 'Dead letters and deferred', DeadLetters],
  ['find', 'Find', Find],
  ['safety', 'Leader and safety', Safety],
]

// readHash is where the address leads: #/dead-letters/17 or #/dead-letters?class=permanent.
function readHash() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?')
  const [screen, n] = path.split('/')
  return { screen: screen || 'flow', n, query: Object.fromEntries(new URLSearchParams(query)) }
}

function useHash() {
  const [at, set] = useState(readHash)
  useLayoutEffect(() => { // at once: an address that is given between two turns would be missed
    const moved = () => set(readHash())
    addEventListener('hashchange', moved)
    return () => removeEventListener('hashchange', moved)
  }, [])
  return at
}

// useLive is the relay as it is now: status each second, and the last hour. While the tab is hidden nothing is
// asked, and what is shown grows old in the open.
function useLive() {
  const [live, set] = useState({ marks: [], points: null, now: Date.now() })
  useEffect(() => {
    let stop
    let late = [] // marks that are heard while the history is on its way
    const tell = (more) => set((old) => ({ ...old, ...(typeof more === 'function' ? more(old) : more) }))
    const history = async () => {
      late = []
      try {
        const { points, marks } = await get('history')
        tell({ points, marks })
        for (const mark of late.splice(0)) hear('mark', mark)
      } catch { if (stop) setTimeout(history, 3000) }
    }
    const hear = (name, data) => {
      if (name === 'mark') late.push(data)
      if (name === 'open') tell({ problem: null })
      if (name === 'open' || name === 'poll') history()
      else if (name === 'lost') tell({ problem: data })
      else if (name === 'status') tell({ status: data, at: Date.now(), now: Date.now() })
      else if (name === 'point') tell((old) => ({ points: old.points && withPoint(old.points, data) }))
      else if (name === 'mark') tell((old) => ({ marks: [...old.marks.filter((m) => m.at !== data.at || m.text !== data.text), data].slice(-200) }))
    }
    const shown = () => {
      stop?.()
      stop = document.hidden ? undefined : listen(hear)
    }
    shown()
    document.addEventListener('visibilitychange', shown)
    const tick = setInterval(() => tell({ now: Date.now() }), 1000)
    return () => { stop?.(); stop = undefined; clearInterval(tick); document.removeEventListener('visibilitychange', shown) }
  }, [])
  return live
}

// withPoint adds a point, or replaces the one of its time, and forgets what is older than an hour.
function withPoint(points, point) {
  const at = points.at.filter((t) => t !== point.at && t > point.at - 3600)
  const from = points.at.length - points.at.filter((t) => t > point.at - 3600).length
  const out = {}
  for (const name of Object.keys(points)) {
    out[name] = points[name].slice(from, from + at.length).concat(point[name] ?? null)
  }
  return out
}

function Login({ said, onOpen }) {
  const [problem, setProblem] = useState(said && new Error(said))
  const [busy, setBusy] = useState(false)
  useEffect(() => document.querySelector('main input').focus(), [])
  const open = async (e) => {
    e.preventDefault()
    setBusy(true)
    session.token = new FormData(e.target).get('token').trim()
    try {
      await get('status') // whose header says what the token may do
      onOpen()
    } catch (err) {
      session.token = ''
      setProblem(err)
      setBusy(false)
    }
  }
  return html`<main class="login">
    <h1>cdc-relay</h1>
    <form onSubmit=${open}>
      <${Field} label="Token" name="token" type="password" required
        hint="The value of one of admin.tokens. This tab keeps it in memory until it is closed or reloaded." />
      <${Fault} problem=${problem} />
      <div class="buttons"><button class="primary" disabled=${busy}>${busy ? 'Asking…' : 'Open'}</button></div>
    </form>
  </main>`
}

const silent = 5000 // ms without a status, after which what is shown is old

function Banner({ live }) {
  const age = live.at && live.now - live.at
  if (!live.problem && !(age > silent)) return null
  const said = visible(live.problem?.message ?? 'The relay is silent.')
  if (live.problem?.status && age <= silent) return html`<p class="banner" role="status">${said} This page asks every two seconds meanwhile.</p>`
  return html`<p class="banner"><span role="alert">${said}</span>${age > silent && ` What is shown is ${span(Math.round(age / 1000))} old.`} Trying again.</p>`
}

// Guarded keeps the frame when a screen fails: the next address is tried again.
function Guarded({ at, children }) {
  const [fault, reset] = useErrorBoundary()
  useEffect(() => { if (fault) reset() }, [at])
  return fault ? html`<${Fault} problem=${new Error(`This screen cannot be shown: ${fault.message}. Go to another one.`)} />` : children
}

function Frame() {
  const live = useLive()
  const at = useHash()
  const heading = useRef()
  const finds = useRef(false) // the key / has led here
  const [name, title, Screen] = screens.find(([s]) => s === at.screen || (s === 'dead-letters' && at.screen === 'deferred')) ?? screens[0]
  useEffect(() => {
    document.querySelector('nav [aria-current=page]').scrollIntoView({ block: 'nearest', inline: 'nearest' })
    document.title = `${title} – cdc-relay`
    if (finds.current) document.querySelector('main input[type=search]')?.focus()
    else if (document.activeElement === document.body || document.activeElement?.closest('nav')) heading.current?.focus({ preventScroll: true })
    finds.current = false
  }, [name])
  useEffect(() => {
    const key = (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input, select, textarea') || document.querySelector('dialog[open]')) return
      const go = e.key === '/' ? screens[3] : screens[Number(e.key) - 1]
      if (!go) return
      e.preventDefault()
      location.hash = '#/' + go[0]
      finds.current = e.key === '/' && name !== 'find'
      if (e.key !== '/') heading.current.focus()
      else if (name === 'find') document.querySelector('main input[type=search]').focus()
    }
    addEventListener('keydown', key)
    return () => removeEventListener('keydown', key)
  }, [name])
  const s = live.status
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); heading.current.focus() }}>Skip to the content</a>
    <header>
      <div class="brand"><b>cdc-relay</b>${s && html`<span class="state"><${Dot} tone=${tones[s.state] ?? 'warn'} />${s.state}</span>`}</div>
      <nav aria-label="Screens">${screens.map(([to, text], i) => html`<a href=${'#/' + to} aria-current=${to === name ? 'page' : undefined} title=${`Key ${i + 1}`}>${text}</a>`)}</nav>
      <div class="who"><span>Role <b>${session.role}</b></span>
        <button type="button" class="small" onClick=${() => close('')}>Leave</button></div>
    </header>
    <p class="sr" role="status">${s ? sentence(s).short : ''}</p>
    <${Banner} live=${live} />
    <main id="main"><h1 tabindex="-1" ref=${heading}>${title}</h1>
      <${Guarded} at=${at}><${Screen} live=${live} query=${at.query} n=${at.n} screen=${at.screen} /></${Guarded}></main>
    <footer><span>Keys: 1 to 5 for the screens, / to find. Times are those of ${Intl.DateTimeFormat().resolvedOptions().timeZone}.</span>${s && html`<span>Version ${visible(s.version)}, up ${span((new Date(s.now) - new Date(s.started_at)) / 1000)}.</span>`}</footer>`
}

function Page() {
  const [open, set] = useState({ is: false })
  onEnd((said) => set({ is: false, said }))
  return open.is ? html`<${Frame} />` : html`<${Login} key=${open.said} said=${open.said} onOpen=${() => set({ is: true })} />`
}

render(html`<${Page} />`, document.getElementById('page'))
