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

async function send(method, path, { query = {}, body, signal } = {}) {
  const url = new URL(path, base)
  for (const [name, value] of Object.entries(query)) {
    if (value !== '' && value != null) url.searchParams.set(name, value)
  }
  const token = session.token
  const headers = { Authorization: 'Bearer ' + token }
  if (body) headers['Content-Type'] = 'application/json'
  let answer
  try {
    answer = await fetch(url, { method, headers, body: body && JSON.stringify(body), signal, cache: 'no-store', credentials: 'omit', redirect: 'error' })
  } catch (err) {
    if (signal?.aborted) throw err
    throw new Problem(0, 'The relay does not answer.')
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
    throw new Problem(0, 'The answer was cut off.')
  }
}

export const get = (path, query, signal) => call('GET', path, { query, signal })
export const post = (path, body) => call('POST', path, { body })

// useGet is a GET that is asked again when its query changes, every so many seconds, and by reload(). What was
// there stays when a later answer fails: at says how old it is.
export function useGet(path, query, every) {
  const [state, set] = useState({})
  const [turn, again] = useState(0)
  const key = path && path + '?' + JSON.stringify(query ?? {})
  useEffect(() => {
    if (!key) return undefined
    const stop = new AbortController()
    let timer
    const ask = async () => {
      set((old) => ({ ...(old.key === key ? old : {}), key, loading: true }))
      try {
        const data = await get(path, query, stop.signal)
        if (!stop.signal.aborted) set({ key, data, at: Date.now() })
      } catch (err) {
        if (!stop.signal.aborted) set((old) => ({ ...old, loading: false, problem: err }))
      }
      if (every && !stop.signal.aborted) timer = setTimeout(ask, every * 1000)
    }
    ask()
    return () => { stop.abort(); clearTimeout(timer) }
  }, [key, turn, every])
  const shown = state.key === key ? state : { loading: Boolean(key) }
  return { ...shown, reload: () => again((n) => n + 1) }
}

const silence = 20_000 // ms without a byte, after which the stream counts as lost: there is a heartbeat

// listen hears the stream until the returned function is called, and begins again when it is lost:
// hear(name, data), with the names of the stream and open, lost.
export function listen(hear) {
  let stopped = false
  let current
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
        const lines = event.split('\n')
        const of = (field) => lines.filter((l) => l.startsWith(field + ':')).map((l) => l.slice(field.length + 1).replace(/^ /, '')).join('\n')
        if (of('data')) hear(of('event') || 'message', JSON.parse(of('data')))
      }
    }
  } finally {
    clearTimeout(timer)
  }
}
