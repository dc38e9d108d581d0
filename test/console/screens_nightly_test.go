//go:build nightly

package console

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// Nothing is shown without a token, and a wrong one says so.
func TestNothingWithoutAToken(t *testing.T) {
	s := newShop(t, largest)
	p := look(chromium(t), t, s.relay.Admin())
	p.allow("401 (Unauthorized)")
	p.accessible("login")
	if text := p.text(); strings.Contains(text, "Flow") || strings.Contains(text, "console_") {
		t.Errorf("without a token it shows: %s", text)
	}
	p.fill("Token", "a-token-that-opens-nothing\r")
	p.says("Authorization: Bearer TOKEN")
	p.open(mayRead)
	p.press("Leave")
	p.until(`document.querySelector('main.login')`)
}

// Every screen and every action, as an operator uses them.
func TestOperator(t *testing.T) {
	s := newShop(t, largest)
	s.order(40)
	s.deadLetters(4)
	s.insert("lost-1", "lost", "customer-1", "shipped", []byte(`{"lost": true}`))
	s.insert("lost-2", "lost", "customer-1", "shipped", []byte(`{"lost": true}`))
	s.becomes(2, "SELECT count(*) FROM cdc_relay.retry")
	p := look(chromium(t), t, s.relay.Admin())
	p.open(mayChange)

	p.step("Flow", func() {
		p.says("1 destination paused", "PostgreSQL", "RabbitMQ", "The relay started")
		p.until(`document.querySelectorAll('.chart canvas').length === 6`)
		p.until(`[...document.querySelectorAll('.chart [role=img]')].some((c) => c.getAttribute('aria-label').includes('highest'))`)
		p.accessible("Flow")
	})
	p.step("Stuck now", func() {
		p.screen("#/stuck")
		p.says("unroutable", "2 events")
		p.accessible("Stuck now")
		p.press("Probe now…")
		p.accessible("the dialog of a probe")
		p.reason("bound again", "Job 1", "In the audit", "token ann from 127.0.0.1, retry of row")
		s.becomes(1, "SELECT count(*) FROM cdc_relay.audit WHERE why = 'bound again' AND action LIKE '%retry%'")
	})
	p.step("one dead letter", func() {
		p.screen("#/dead-letters?state=open")
		p.says("too_large", "invoiced")
		p.accessible("Dead letters")
		p.press("4")
		p.says("12345678901234567890", "\"tenant\": \"eu\"", "Show all")
		p.accessible("a dead letter")
		p.press("Show all")
		p.until(`document.querySelector('pre').textContent.length > 64_000`)
		p.press("Replay…")
		p.accessible("the dialog of a replay")
		p.fill("Another exchange", "amq.fanout")
		p.reason("once more", "Request")
		p.says("replay asked", "once more", "token ann")
		p.press("Resend…")
		p.reason("the row again", "Job")
		p.press("Redact…")
		p.reason("a person asked", "done")
		p.says("its contents are removed")
		s.becomes(1, "SELECT count(*) FROM cdc_relay.audit WHERE why = 'a person asked' AND action = 'redact'")
		p.press("Discard…")
		p.reason("sent by hand", "done", "In the audit", "discard of row 4")
		p.says("discarded")
		s.becomes(1, "SELECT count(*) FROM cdc_relay.dead_letter WHERE state = 'discarded'")
	})
	p.step("a deferred event", func() {
		p.screen("#/deferred")
		p.says("unroutable")
		p.accessible("Deferred")
		p.press("type")
		p.until(`location.hash.includes('group=type') && document.querySelector('td a[href*="type=shipped"]')`)
		p.press("reason")
		p.until(`location.hash.includes('group=reason') && document.querySelector('td a[href*="error=unroutable"]')`)
		p.says("not refused: behind another one", "lost.shipped")
		p.press("unroutable")
		p.until(`location.hash.includes('error=unroutable') && document.querySelectorAll('td a[href^="#/deferred/"]').length === 1`)
		p.screen("#/deferred")
		p.until(`document.querySelectorAll('td a[href^="#/deferred/"]').length === 2`)
		p.run(chromedp.Evaluate(`document.querySelector('td a[href^="#/deferred/"]').click()`, nil))
		p.says("Deferred event")
		p.press("Retry now…")
		p.reason("try it", "Request")
		p.press("Give up…")
		p.reason("nobody wants it", "done")
		s.becomes(1, "SELECT count(*) FROM cdc_relay.retry")
	})
	p.step("many", func() {
		s.deadLetters(30)
		p.screen("#/dead-letters?state=open&type=invoiced&error=too_large")
		p.press("Discard…")
		p.says("33 matches")
		p.fill("At most so many a second", "2")
		p.reason("slowly", "has begun")
		p.says("running")
		p.until(`[...document.querySelectorAll('progress')].some((e) => e.max === 33 && e.value > 0 && e.value < 33)`)
		p.press("Cancel…")
		p.reason("enough")
		p.says("cancelled")
		s.becomes(1, "SELECT count(*) FROM cdc_relay.audit WHERE why = 'enough'")
		p.screen("#/dead-letters?state=discarded")
		p.press("Purge…")
		p.says("match")
		p.reason("old", "has begun")
		s.becomes(0, "SELECT count(*) FROM cdc_relay.dead_letter WHERE state = 'discarded'")
	})
	p.step("filters are in the address", func() {
		p.screen("#/dead-letters?state=open")
		p.press("too_large")
		p.until(`location.hash.includes('error=too_large')`)
		p.fill("Key", "customer-3\r")
		p.until(`location.hash.includes('key=customer-3') && location.hash.includes('error=too_large')`)
		p.says("customer-3")
		p.press("Clear")
		p.until(`location.hash === '#/dead-letters'`)
	})
	p.step("Find", func() {
		p.screen("#/find")
		p.fill("Id of an event", "lost-2\r")
		p.says("dead letter", "lost.shipped")
		p.accessible("Find by id")
		p.screen("#/find?q=customer-1")
		p.says("delivered", "deferred")
		p.accessible("Find by key")
	})
	p.step("Leader and safety", func() {
		p.screen("#/safety")
		p.says("leads", "https://relay-0.internal:8464", "console_testoperator", "no limit but the disk", "are fine", "sink.rabbitmq.url", "sent by hand")
		p.until(`[...document.querySelectorAll('td details')].some((d) => { d.open = true; return d.lastChild.textContent.length > 20 })`)
		if strings.Contains(p.text(), mayChange) {
			t.Error("the configuration shows a token")
		}
		p.accessible("Leader and safety")
		p.press("Show all")
		p.fill("Key or word", "backoff")
		p.says("retry.max_backoff")
		p.fill("Action", "discard\r")
		p.says("sent by hand")
	})
}

// The way to an answer at night needs no mouse: open, look, find the dead letter, discard it.
func TestKeyboardAlone(t *testing.T) {
	s := newShop(t, largest)
	s.deadLetters(1)
	p := look(chromium(t), t, s.relay.Admin())
	keys := func(text string) { p.run(chromedp.KeyEvent(text)) }
	tabTo := func(name string) {
		t.Helper()
		for range 80 {
			keys(kb.Tab)
			if value[bool](p, `document.activeElement.textContent.trim().startsWith(`+quote(name)+`) && document.activeElement.matches(':focus-visible')`) {
				return
			}
		}
		t.Fatalf("Tab does not lead to %q: %s", name, p.text())
	}
	keys(mayChange + kb.Enter) // the field has the focus
	p.until(`document.activeElement.tagName === 'H1'`)
	keys("3")
	p.until(`location.hash === '#/dead-letters' && document.activeElement.textContent === 'Dead letters and deferred'`)
	p.says("too_large")
	tabTo("1")
	keys(kb.Enter)
	p.says("Dead letter 1, open")
	tabTo("Discard…")
	keys(kb.Enter)
	p.until(`document.querySelector('dialog[open]')?.contains(document.activeElement)`)
	keys(kb.Escape)
	p.until(`!document.querySelector('dialog[open]') && document.activeElement.textContent === 'Discard…'`)
	keys(kb.Enter)
	p.until(`document.querySelector('dialog[open]')`)
	for range 20 { // the dialog keeps the focus
		keys(kb.Tab)
		if !value[bool](p, `document.activeElement === document.body || document.querySelector('dialog[open]').contains(document.activeElement)`) {
			t.Error("the focus leaves the dialog")
		}
	}
	for range 20 {
		if value[string](p, `document.activeElement.name ?? ''`) == "reason" {
			break
		}
		keys(kb.Tab)
	}
	keys("by hand" + kb.Enter)
	p.says("done")
	keys(kb.Enter)
	p.says("Dead letter 1, discarded")
	keys("/")
	p.until(`document.activeElement.matches('input[type=search]')`)
	keys("large-0-0" + kb.Enter)
	p.says("The event with this id", "dead letter")
	for i, title := range []string{"Flow", "Stuck now", "Dead letters and deferred", "Find", "Leader and safety"} {
		p.run(chromedp.Evaluate(`document.activeElement.blur()`, nil))
		keys(fmt.Sprint(i + 1))
		p.until(`document.querySelector('h1').textContent === ` + quote(title))
	}
}

// A token that may read sees everything and has no button that changes something; the server
// refuses the change, whoever asks.
func TestReader(t *testing.T) {
	s := newShop(t, largest)
	s.deadLetters(1)
	s.insert("lost-1", "lost", "customer-1", "shipped", nil)
	s.becomes(1, "SELECT count(*) FROM cdc_relay.retry")
	p := look(chromium(t), t, s.relay.Admin())
	p.allow("403 (Forbidden)")
	p.open(mayRead)
	p.says("Role read")
	for _, screen := range []string{"#/flow", "#/stuck", "#/dead-letters", "#/dead-letters/1", "#/deferred", "#/find?q=large-0-0", "#/safety"} {
		p.screen(screen)
		if found := value[[]string](p, `[...document.querySelectorAll('button')].map((b) => b.textContent).filter((b) => b.endsWith('…'))`); len(found) > 0 {
			t.Errorf("%s: a reader has %q", screen, found)
		}
	}
	for _, path := range []string{"dead-letters/1/discard", "dead-letters/purge", "resend", "destinations/eA/retry", "deferred/retry"} {
		code := value[int](p, fmt.Sprintf(`fetch('../api/v1/%s', {method: 'POST', headers: {Authorization: 'Bearer %s', 'Content-Type': 'application/json'}, body: '{}'}).then((r) => r.status)`, path, mayRead))
		if code != 403 {
			t.Errorf("POST %s: %d", path, code)
		}
	}
}

// What breaks is said in words, what is shown says how old it is, and it goes on by itself.
func TestFaults(t *testing.T) {
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true, Settings: map[string]string{"max_slot_wal_keep_size": "64MB"}})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, pg.Close()) })
	s := newShopOn(t, pg, largest)
	s.order(10)
	browser := chromium(t)
	p := look(browser, t, s.relay.Admin())
	p.allow("ERR_CONNECTION_REFUSED", "503 (Service Unavailable)", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET")
	p.open(mayChange)
	p.until(`/Streaming|Idle/.test(document.querySelector('.sentence')?.textContent)`)

	t.Log("the broker is stopped")
	await.Must(t, s.rabbit.Stop(await.Context(t)))
	p.says("Broker down")
	p.accessible("broker down")
	t.Log("the slot comes near its limit")
	s.order(1)
	s.exec(`SELECT pg_logical_emit_message(false, 'noise', repeat('x', 1000000)) FROM generate_series(1, 46)`)
	p.until(`/^Broker down for .*; 4\d[.]\d MB of WAL kept, .* to the limit[.]$/.test(document.querySelector('.sentence')?.textContent)`)
	p.accessible("the limit is near")
	t.Log("and started")
	await.Must(t, s.rabbit.Start(await.Context(t)))
	p.until(`/Streaming|Idle/.test(document.querySelector('.sentence')?.textContent)`)
	p.says("The broker is up again")

	t.Log("PostgreSQL is stopped")
	_, err = pg.Stop("fast")
	await.Must(t, err)
	p.says("Waiting for PostgreSQL", "not reached")
	p.until(`document.querySelector('.arrow').className === 'arrow bad'`)
	p.accessible("PostgreSQL is away")
	for _, screen := range []string{"#/stuck", "#/dead-letters?state=open", "#/find?q=x", "#/safety"} {
		p.screen(screen) // says that the database does not answer, in place
		p.until(`document.querySelector('main .fault, main .muted')`)
		p.accessible(screen + " without PostgreSQL")
	}
	t.Log("and started")
	await.Must(t, pg.Start(await.Context(t)))
	p.screen("#/flow")
	p.until(`/Streaming|Idle/.test(document.querySelector('.sentence')?.textContent)`)

	t.Log("a standby")
	standby := s.start(strings.Replace(s.config, "relay-0", "relay-1", 1))
	q := look(browser, t, standby.Admin())
	q.open(mayRead)
	q.says("Standing by")
	q.until(`document.querySelector('a[href="https://relay-0.internal:8464"]')`)
	p.front()
	p.screen("#/safety")
	p.until(`document.querySelector('a[href="https://relay-1.internal:8464"]')`)
	p.screen("#/flow")
	q.front()

	t.Log("the leader is killed")
	p.front()
	await.Must(t, s.relay.Kill())
	p.until(`/(does not answer|was lost)[.] What is shown is .* old[.] Trying again[.]/.test(document.querySelector('.banner')?.textContent)`)
	p.until(`document.querySelector('.sentence')`) // no empty page
	p.screen("#/stuck")
	p.says("The relay does not answer.", "Ask again")
	q.front()
	q.until(`/Streaming|Idle/.test(document.querySelector('.sentence')?.textContent)`)
	q.says("This relay leads.")
	t.Log("and comes back")
	p.front()
	s.start(s.config, "CDC_RELAY_ADMIN__LISTEN="+strings.TrimPrefix(s.relay.Admin(), "http://"))
	p.until(`!document.querySelector('.banner') && !document.querySelector('.fault')`)
	p.says("Only the leader knows")
	p.screen("#/flow")
	p.says("Standing by")
}
