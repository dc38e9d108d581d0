// The relay's API: requests with the token that this tab holds, and the stream of what happens. The token is
// nowhere but in this module's memory: a reload asks for it again.

import { useEffect, useState } from './lib/htm-preact.js'

const base = new URL('../api/v1/', location.href)

export const session = { token: '', role: '' }

// may is true for what changes something, with a token that allows it. The server checks it again.
export const may = () => session.role === 'operate'

// Problem is an error as a sentence. Status 0: nobody answered.
export class Problem extends Error {
  constructor(status, sentence) {
    super(sentence)
    this.status = status
  }
}

let ended = () => {} // told when the token no longer opens anything
export const onEnd = (f) => { ended = f }

export function close(sentence) {
  Object.assign(session, { token: '', role: '' })
  ended(sentence)
}

const doubt = (method, body) => (method === 'GET' || body?.dry_run ? '' : ' The request may be stored all the same: look at the jobs and the audit before you ask again.')

async function send(method, path, { query = {}, body, signal } = {}) {
  const url = new URL(path, base)
  for (const [name, value] of Object.entries(query)) {
    if (value !== '' && value != null) url.searchParams.set(name, value)
  }
  const token = session.token
  if (!token) throw new Problem(0, 'The page was left.')
  if (/[^\x20-\xff]/.test(token)) throw new Problem(0, 'No token has such characters.')
  const headers = { Authorization: 'Bearer ' + token }
  if (body) headers['Content-Type'] = 'application/json'
  let answer
  try {
    answer = await fetch(url, { method, headers, body: body && JSON.stringify(body), signal, cache: 'no-store', credentials: 'same-origin', redirect: 'error' })
  } catch (err) {
    if (signal?.aborted) throw err
    throw new Problem(0, 'The relay does not answer.' + doubt(method, body))
  }
  if (answer.ok) {
    session.role = answer.headers.get('Cdc-Relay-Role') ?? session.role
    return answer
  }
  let sentence = ''
  try {
    sentence = (await answer.json()).detail
  } catch { /* not ours: a proxy's page, perhaps */ }
  sentence ||= `The answer was ${answer.status} ${answer.statusText}`.trim()
  sentence = sentence[0].toUpperCase() + sentence.slice(1) + (/[.!?]$/.test(sentence) ? '' : '.')
  if (answer.status > 500 && !answer.headers.get('Content-Type')?.startsWith('application/problem')) sentence += doubt(method, body)
  if (answer.status === 401 && token === session.token) close(sentence)
  throw new Problem(answer.status, sentence)
}

// call asks once and gives the JSON of the answer; else it throws a Problem.
export async function call(method, path, options) {
  const answer = await send(method, path, options)
  try {
    return await answer.json()
  } catch (err) {
    if (options?.signal?.aborted) throw err
    throw new Problem(0, 'The answer was cut off.' + doubt(method, options?.body))
  }
}

export const get = (path, query, signal) => call('GET', path, { query, signal })
export const post = (path, body) => call('POST', path, { body })

// useGet is a GET that is asked again when its query changes, every so many seconds while the tab is seen, and by
// reload(). What was there stays when a later answer fails: at says how old it is.
export function useGet(path, query, every) {
  const [state, set] = useState({})
  const [turn, again] = useState(0)
  const key = path && path + '?' + JSON.stringify(query ?? {})
  useEffect(() => {
    if (!key) return undefined
    const stop = new AbortController()
    let timer
    const ask = async () => {
      clearTimeout(timer)
      set((old) => ({ ...(old.key === key ? old : {}), key, loading: true }))
      try {
        const data = await get(path, query, stop.signal)
        if (!stop.signal.aborted) set({ key, data, at: Date.now() })
      } catch (err) {
        if (!stop.signal.aborted) set((old) => ({ ...old, loading: false, problem: err }))
      }
      clearTimeout(timer)
      if (every && !stop.signal.aborted && !document.hidden) timer = setTimeout(ask, every * 1000)
    }
    const turned = () => { if (document.hidden) clearTimeout(timer); else ask() }
    if (every) document.addEventListener('visibilitychange', turned)
    ask()
    return () => { stop.abort(); clearTimeout(timer); document.removeEventListener('visibilitychange', turned) }
  }, [key, turn, every])
  const shown = state.key === key ? state : { loading: Boolean(key) }
  return { ...shown, reload: () => again((n) => n + 1) }
}

const silence = 20_000 // ms without a byte, after which the stream counts as lost: there is a heartbeat

// listen hears the stream until the returned function is called, and begins again when it is lost:
// hear(name, data), with the names of the stream and open, lost, poll (a time to ask for what only the stream has).
export function listen(hear) {
  let stopped = false
  let current, polled = 0
  let wake = () => {}
  const pause = (ms) => new Promise((done) => { wake = done; setTimeout(done, ms) })
  const run = async () => {
    for (let tries = 0; !stopped; tries++) {
      let longest = 8000
      current = new AbortController()
      try {
        const answer = await send('GET', 'stream', { signal: current.signal })
        await follow(answer.body.getReader(), current, (name, data) => {
          tries = 0
          if (!stopped) hear(name, data)
        })
        throw new Problem(0, 'The connection to the relay was lost.')
      } catch (err) {
        if (stopped || !session.token) return
        hear('lost', err instanceof Problem ? err : new Problem(0, 'The connection to the relay was lost.'))
        if (err.status) { // it answers, but has no stream for us: its status all the same
          longest = 2000
          if (Date.now() - polled > 10_000) { polled = Date.now(); hear('poll') }
          try { hear('status', await get('status')) } catch { /* said already */ }
        }
      }
      await pause(Math.min(500 * 2 ** tries, longest))
    }
  }
  run()
  return () => { stopped = true; current?.abort(); wake() }
}

// follow reads events as they are written on the wire, until the end.
async function follow(reader, stop, hear) {
  const text = new TextDecoder()
  let rest = '', timer
  const alive = () => { clearTimeout(timer); timer = setTimeout(() => stop.abort(), silence) }
  try {
    alive()
    hear('open')
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      alive()
      const events = (rest + text.decode(value, { stream: true })).split('\n\n')
      rest = events.pop()
      for (const event of events) {
        const [, name, data] = event.match(/^event: (.*)\ndata: ([^]*)$/) ?? [] // else a heartbeat
        if (name) hear(name, JSON.parse(data))
      }
    }
  } finally {
    clearTimeout(timer)
  }
}
