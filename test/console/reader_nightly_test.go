//go:build nightly

package console

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// What is shown is in the reader's own time and in words, can be taken along, and says how old it
// is.
func TestWhatAReaderSees(t *testing.T) {
	s := newShop(t, largest)
	s.order(40)
	s.deadLetters(1)
	s.insert("lost-1", "lost", "customer-1", "shipped", []byte(`{"a":  1}`))
	s.becomes(1, "SELECT count(*) FROM cdc_relay.retry")
	p := look(chromium(t), t, s.relay.Admin())
	p.run(emulation.SetTimezoneOverride("Asia/Kabul")) // UTC and 4 h 30 min, all year
	await.Must(t, browser.GrantPermissions([]browser.PermissionType{browser.PermissionTypeClipboardReadWrite, browser.PermissionTypeClipboardSanitizedWrite}).
		Do(cdp.WithExecutor(p.ctx, chromedp.FromContext(p.ctx).Browser)))
	p.open(mayChange)

	p.step("times of the zone, with UTC for who holds the pointer there", func() {
		p.says("Times are those of Asia/Kabul.")
		for _, screen := range []string{"#/flow", "#/stuck", "#/dead-letters?state=open", "#/dead-letters/1", "#/find?q=customer-0", "#/safety"} {
			p.screen(screen)
			p.until(`document.querySelector('main time')`)
			wrong := value[[]string](p, `[...document.querySelectorAll('main time')].filter((e) => {
				const text = (ms) => new Date(ms).toISOString().slice(0, 19).replace('T', ' ')
				const at = Date.parse(e.dateTime), here = text(at + 4.5 * 3600_000), utc = text(at) + ' UTC'
				const is = (text, end = '') => text === here + end || text === here.slice(11) + end
				return e.textContent === 'now' || e.textContent.endsWith(' ago') ? !is(e.title, ' here, ' + utc) : e.title !== utc || !is(e.textContent)
			}).map((e) => e.outerHTML)`)
			if len(wrong) > 0 {
				t.Errorf("%s: %q", screen, wrong)
			}
		}
	})
	p.step("a sentence for each state", func() { s.sentences(p) })
	p.step("a replay goes elsewhere by the words of the broker", func() {
		for kind, want := range map[string]string{"rabbitmq": "exchange,routing_key", "kafka": "topic", "stdout": ""} {
			got := value[string](p, `import('/console/requests.js').then(({Elsewhere}) => [Elsewhere({kind: '`+kind+`'})].flat().filter(Boolean).map((v) => v.props.name).join())`)
			if got != want {
				t.Errorf("for %s there are the fields %q, want %q", kind, got, want)
			}
		}
	})
	p.step("payload and headers are copied as they are", func() {
		p.screen("#/deferred/2")
		p.front()
		copied := func(button, want string) {
			t.Helper()
			p.until(named(button))
			p.run(chromedp.Evaluate(named(button)+`.click()`, nil, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithUserGesture(true) }))
			p.says("Copied")
			if got := value[string](p, `Object.getOwnPropertyDescriptor(Navigator.prototype, 'clipboard').get.call(navigator).readText()`); !strings.Contains(got, want) {
				t.Errorf("%s copies %q, want %q", button, got, want)
			}
			p.until(named(button)) // has its name again
		}
		copied("Copy payload", `{"a":  1}`)
		copied("Copy headers", `"tenant"`)
		// as without TLS
		p.run(chromedp.Evaluate(`Object.defineProperty(navigator, 'clipboard', {value: undefined})`, nil))
		copied("Copy payload", `{"a":  1}`)
	})
	p.step("an answer that is not asked for again by itself grows old in the open", func() {
		p.screen("#/dead-letters?state=open")
		p.says("too_large")
		if value[bool](p, named("Ask again")+` !== undefined`) {
			t.Error("a new answer is called old")
		}
		p.run(chromedp.Evaluate(`{ const now = Date.now; Date.now = () => now() + 61_000 }`, nil))
		p.says("Shown is the answer of")
		p.until(`(() => { const b = ` + named("Ask again") + `; b?.click(); return !b })()`)
		p.says("too_large")
	})
}

// sentences gives the page what the relay may say of itself.
func (s *shop) sentences(p *tab) {
	for change, want := range map[string]string{
		`{state: 'streaming', rates: {latency_p50_seconds: 0.0008}}`:                                                                                        "Streaming, 0.8 ms behind.",
		`{state: 'streaming', rates: {latency_p50_seconds: null}, slot: {lag_seconds: null}}`:                                                               "Streaming.",
		`{state: 'idle', dead_letters: {open: 0}}`:                                                                                                          "Idle: nothing waits.",
		`{state: 'idle', dead_letters: {open: 1}}`:                                                                                                          "Idle: nothing waits, 1 dead letter open.",
		`{state: 'catching up', slot: {lag_seconds: 95, lag_bytes: 2.1e9}, rates: {published_per_second: 812.4}}`:                                           "Catching up: 2 min and 2.1 GB behind, 812/s.",
		`{state: 'broker down', broker: {down_since: '2026-11-20T11:56:00Z'}, slot: {retained_bytes: 2.1e9, safe_wal_bytes: 9e9, safe_wal_seconds: 10800}}`: "Broker down for 4 min; 2.1 GB of WAL kept, 3 h to the limit.",
		`{state: 'broker down', broker: {down_since: null}, slot: {checked_at: '0001-01-01T00:00:00Z'}}`:                                                    "Broker down; how much WAL is kept is not known.",
		`{state: 'destination paused', broker: {paused_total: 2}, deferred: {events: 1204}}`:                                                                "2 destinations paused, 1,204 events deferred; everything else flows.",
		`{state: 'deferring', deferred: {events: 1}}`:                                                                                                       "Deferring: 1 event will be sent again.",
		`{state: 'deferring', why: 'the disk guard'}`:                                                                                                       "Deferring: the disk guard.",
		`{state: 'standby', why: 'relay-1 leads'}`:                                                                                                          "Standing by: relay-1 leads.",
		`{state: 'waiting for postgres', why: 'connection refused\u202e'}`:                                                                                  "Waiting for PostgreSQL: connection refused[U+202E].",
		`{state: 'stopped', why: 'slot "x" no longer exists'}`:                                                                                              `Stopped: slot "x" no longer exists.`,
		`{state: 'starting'}`: "Starting.",
		`{state: 'idle', dead_letters: {open: 0}, slot: {retained_bytes: 9e9, safe_wal_bytes: 1e9, safe_wal_seconds: 600}}`: "Idle: nothing waits. In danger: 9.0 GB of WAL kept, 10 min to the limit.",
		`{state: 'idle', dead_letters: {open: 0}, slot: {wal_status: 'lost'}}`:                                              "Idle: nothing waits. In danger: the slot is lost.",
		`{state: 'idle', dead_letters: {open: 0}, slot: {retained_bytes: 9e9, safe_wal_bytes: 0}}`:                          "Idle: nothing waits. In danger: 9.0 GB of WAL kept; the slot is lost at the next checkpoint.",
	} {
		got := value[string](p, `Promise.all([import('/console/flow.js'), import('/console/api.js')]).then(async ([{sentence}, {get}]) => {
			const s = await get('status')
			const base = {now: '2026-11-20T12:00:00Z', why: '', slot: {checked_at: s.now, wal_status: 'reserved', retained_bytes: 1e6, safe_wal_bytes: null, safe_wal_seconds: null, lag_seconds: 0},
				rates: {latency_p50_seconds: null}, deferred: {counted_at: s.now}}
			const change = `+change+`
			const all = {...s, ...base, ...change}
			for (const part of ['slot', 'rates', 'deferred', 'dead_letters', 'broker']) all[part] = {...s[part], ...base[part], ...change[part]}
			return sentence(all).text
		})`)
		if got != want {
			s.t.Errorf("%s: %q, want %q", change, got, want)
		}
	}
}

// What an operator looks for at night is said with where it leads: what a key waits behind, and
// the exact commands of a finding, one of which is played.
func TestWhatAnOperatorDecides(t *testing.T) {
	s := newShop(t, largest)
	for i := range 3 {
		s.insert(fmt.Sprint("lost-", i), "lost", "customer-1", "shipped", nil)
	}
	s.becomes(3, "SELECT count(*) FROM cdc_relay.retry")
	await.Must(t, s.relay.Kill()) // else it writes to the row, too
	s.exec(`UPDATE cdc_relay.retry SET next_attempt = now() + interval '1 hour', class = 'transient', reason = 'broker_exception' WHERE n = (SELECT min(n) FROM cdc_relay.retry)`)
	s.relay = s.start(s.config)
	all := chromium(t)
	p := look(all, t, s.relay.Admin())
	p.open(mayRead)
	p.screen("#/stuck")
	p.says("Waiting for a time of their own", "broker_exception")
	p.press("2 events")
	p.until(`document.querySelectorAll('td a[href^="#/deferred/"]').length === 3`)
	p.press("Leave")

	await.Must(t, s.relay.Kill())
	await.Until(t, "the slot is dropped", func() bool {
		return pgserver.OnConn(await.Context(t), s.db, func(conn *pgx.Conn) error {
			_, err := conn.Exec(await.Context(t), `SELECT pg_drop_replication_slot('console_testwhatanoperatordecides')`)
			return err
		}) == nil
	})
	s.relay = runner.Start(t, runner.Build(t), s.config, "--hold-on-fatal")
	await.Until(t, "the relay has stopped", func() bool {
		_, answer, err := s.relay.Get(await.Context(t), "/api/v1/status")
		return err == nil && strings.Contains(answer, `"state":"stopped"`)
	})
	p = look(all, t, s.relay.Admin())
	p.open(mayChange)
	p.says("Stopped", "no longer exists", "Relaying has stopped")
	p.accessible("a finding")
	p.screen("#/safety")
	p.says("Open finding", "cdc-relay recover --order-by COLUMN")
	commands := value[[]string](p, `[...document.querySelectorAll('.attention .command')].filter((e) => e.querySelector('button')).map((e) => e.querySelector('code').textContent)`)
	// recover is not offered to be copied: it has a placeholder
	if len(commands) != 1 || !regexp.MustCompile(`^cdc-relay accept [0-9a-f]+$`).MatchString(commands[0]) {
		t.Fatalf("the commands are %q", commands)
	}
	res, err := runner.RunCommand(await.Context(t), runner.Build(t), s.config, strings.Fields(commands[0])[1:]...)
	if err != nil || res.Code != 0 {
		t.Fatalf("%s: exit %d, %v: %s", commands[0], res.Code, err, res.Stderr)
	}
	p.screen("#/flow")
	p.says("An operator has decided")
	p.until(`!document.querySelector('.attention .command')`)
}

// A relay has 32 listeners. The page of the 33rd asks instead, and a tab that is hidden does not.
func TestManyReaders(t *testing.T) {
	s := newShop(t, largest)
	var listeners []*http.Response
	leave := func() {
		for _, l := range listeners {
			_ = l.Body.Close()
		}
	}
	t.Cleanup(leave)
	for range 32 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.relay.Admin()+"/api/v1/stream", nil)
		await.Must(t, err)
		r.Header.Set("Authorization", "Bearer "+mayRead)
		answer, err := http.DefaultClient.Do(r)
		await.Must(t, err)
		listeners = append(listeners, answer)
	}
	all := chromium(t)
	p := look(all, t, s.relay.Admin())
	p.allow("503 (Service Unavailable)")
	p.open(mayRead)
	p.says("32 listeners read the stream already", "This page asks every two seconds meanwhile.")
	p.until(`document.querySelectorAll('.chart canvas').length === 6`)
	p.accessible("the 33rd reader")
	leave()
	p.until(`!document.querySelector('.banner')`)

	p.screen("#/stuck") // which asks every three seconds
	q := look(all, t, s.relay.Admin())
	q.open(mayRead)
	q.screen("#/stuck")
	q.front()
	p.until(`document.hidden`)
	hidden, shown := p.requests(), q.requests()
	await.Until(t, "the tab that is seen asks", func() bool { return q.requests() >= shown+2 })
	if n := p.requests(); n > hidden {
		t.Errorf("a hidden tab has asked %d times", n-hidden)
	}
	p.front()
	await.Until(t, "the other one asks when it is seen", func() bool { return p.requests() >= hidden+2 })
}
