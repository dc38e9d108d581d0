//go:build nightly

package console

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// Each button does what it says, and what cannot be done has none.
func TestButtonsDoWhatTheySay(t *testing.T) {
	s := newShop(t, largest)
	s.deadLetters(6)
	s.insert("without a type", "order", "customer-9", "", []byte(strings.Repeat("x", largest+1)))
	s.becomes(7, "SELECT count(*) FROM cdc_relay.dead_letter")
	p := look(chromium(t), t, s.relay.Admin())
	p.allow("400 (Bad Request)")
	p.open(mayChange)
	hasNo := func(name string) {
		t.Helper()
		if value[bool](p, named(name)+` !== undefined`) {
			t.Errorf("%s: there is a button %q", value[string](p, `location.hash`), name)
		}
	}

	p.step("a resend goes where the dialog says, and counts before", func() {
		p.screen("#/dead-letters/1")
		p.press("Resend…")
		p.says("has counted 1 row", "out of order")
		p.accessible("the dialog of a resend")
		p.fill("Another routing key", "order.repaired")
		p.reason("bound late", "Job")
		s.becomes(1, "SELECT count(*) FROM cdc_relay.bulk WHERE kind = 'resend' AND routing_key = 'order.repaired' AND reason = 'bound late'")
	})
	p.step("a resend of one of the tables", func() {
		p.press("Resend…")
		p.says("has counted 1 row")
		p.choose("Rows of", "public.returns")
		p.says("has counted 0 rows")
		p.choose("Rows of", "public.outbox")
		p.says("has counted 1 row")
		p.press("Cancel")
	})
	p.step("a resend is offered where it is allowed", func() {
		p.press("Redact…")
		p.reason("a person asked", "done")
		p.says("its contents are removed")
		hasNo("Resend")
		s.exec(`UPDATE cdc_relay.dead_letter SET system_id = 'of the original' WHERE n = 2`)
		p.screen("#/dead-letters/2")
		p.says("It is of another system")
		hasNo("Resend")
		hasNo("Discard…")
	})
	p.step("what was counted is what is sent", func() {
		p.screen("#/dead-letters?state=open")
		p.screen("#/dead-letters?state=open&class=permanent")
		p.press("Discard…")
		p.until(`!document.querySelector('dialog[open] button[type=submit]').disabled`)
		p.fill("Reason", "half typed")
		p.run(chromedp.Evaluate(`history.back()`, nil))
		p.until(`location.hash === '#/dead-letters?state=open' && !document.querySelector('dialog[open]')`)
		s.becomes(0, "SELECT count(*) FROM cdc_relay.bulk WHERE kind = 'discard'")
		p.screen("#/dead-letters?key_of=x")
		p.says("want the number of a row")
		hasNo("Purge…")
		p.screen("#/dead-letters?from=yesterday")
		p.says("The newest", "yesterday")
		hasNo("Purge…")
	})
	p.step("a purge says what it deletes", func() {
		p.screen("#/dead-letters?key=customer-3")
		p.press("Purge…")
		p.says("every deferred event that matches, which is then never delivered")
		p.press("Cancel")
		p.screen("#/dead-letters")
		p.press("Purge…")
		p.says("every closed dead letter (replayed or discarded) that matches")
		p.press("Cancel")
	})
	p.step("a group without a name chooses nothing", func() {
		p.screen("#/dead-letters?group=type&state=open")
		p.until(`[...document.querySelectorAll('td')].some((d) => d.textContent === 'empty' && !d.querySelector('a'))`)
		p.until(`document.querySelector('td a[href*="type=invoiced"]')`)
		p.screen("#/dead-letters?state=replaying")
		p.says("Those that are replaying are not counted.")
	})
	p.step("a gap is closed", func() {
		s.exec(`INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason, from_lsn, until_lsn) SELECT slot, system_id, 1, '3f9a', 'slot_lost', '0/1', '0/2' FROM cdc_relay.slots`)
		p.screen("#/safety")
		p.press("Resend gap 1…")
		p.says("has counted")
		p.press("Cancel")
		p.press("Close gap 1…")
		p.accessible("the dialog of a gap")
		p.reason("sent by hand", "Gap 1 is closed.", "In the audit", "close gap")
		s.becomes(1, "SELECT count(*) FROM cdc_relay.gap WHERE recovered_at IS NOT NULL")
	})
	p.step("an event of a key is found by its type", func() {
		p.screen("#/find?q=customer-1&type=invoiced&state=dead letter")
		p.says("dead letter", "invoiced")
		p.accessible("Find with filters")
		p.screen("#/find?q=..")
		p.says("A browser cannot ask for this id")
	})
}
