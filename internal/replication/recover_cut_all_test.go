//go:build testall

package replication

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Nothing is made of bad input, and nothing is changed.
func TestRecoverRefuses(t *testing.T) {
	b := lost(t)
	b.exec(`INSERT INTO outbox VALUES ('gap', NULL)`)
	before := b.remembered()
	b.exec(`CREATE TABLE other (id text, payload jsonb)`)
	for name, c := range map[string]struct {
		change func(*repair.RecoverOptions)
		says   string
	}{
		"order":       {func(*repair.RecoverOptions) {}, "order unknown: track_commit_timestamp is off"},
		"column":      {by("nothing"), `has no column "nothing"`},
		"NULLs":       {by("payload"), `column "payload" of table public.outbox is NULL in 1 rows`},
		"expression":  {func(o *repair.RecoverOptions) { o.Where, o.Unordered = "id = ", true }, "the WHERE is not a condition"},
		"two":         {func(o *repair.RecoverOptions) { o.Where, o.Unordered = "true) OR (true", true }, "the WHERE is not a condition"},
		"statement":   {func(o *repair.RecoverOptions) { o.Where, o.Unordered = "true); DROP TABLE other; --", true }, "the WHERE is not a condition"},
		"text":        {func(o *repair.RecoverOptions) { o.Where, o.Unordered = "id", true }, "the WHERE is not a condition"},
		"no function": {func(o *repair.RecoverOptions) { o.Where, o.Unordered = "1 / length(substr(id, 1, 0)) > 0", true }, "the WHERE fails at a row"},
	} {
		_, err := b.recover(c.change)
		b.wantStop(err, event.ExitUsage, "usage", c.says)
		if got := b.remembered(); got != before {
			t.Errorf("%s: it was changed from %s to %s", name, before, got)
		}
	}
	b.wantText("0", `SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
	report, err := b.recover(func(o *repair.RecoverOptions) { o.DryRun = true })
	if await.Must(t, err); report.Recovered < 1 || report.Order != "unknown" {
		t.Errorf("a dry run: %+v", report)
	}
	b.wantRemembered(before)

	_, err = b.recover(anyOrder)
	await.Must(t, err)
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "there is nothing to recover")
	conn := b.hold("cdc-relay/other")
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "is in use by")
	source.CloseStream(conn)
	b.dropSlot()
	b.createSlot("test_decoding")
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "test_decoding", "recover does not touch it")
	b.dropSlot()
	b.exec(`UPDATE cdc_relay.slots SET state = 'creating'`) // a crash after an accepted loss
	_, err = b.recover(anyOrder)
	await.Must(t, err)
	b.wantText("ready", `SELECT state FROM cdc_relay.slots`)
	b.cfg.Slot += "_x"
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "no relay has used", "init --backfill")
}

// A slot of another publication cannot be read on; a slot that somebody else has made again can.
func TestRecoverWithAnotherPublication(t *testing.T) {
	b := shared(t)
	b.settledRun("a").endClean()
	b.insert("gap")
	b.exec(`DROP PUBLICATION p`)
	_, err := b.recover(anyOrder)
	await.Must(t, err)
	if got := b.waiting(); !slices.Contains(got, "gap") {
		t.Errorf("recovered %q", got)
	}
	b.streaming().endClean()
	b.dropSlot()
	b.createSlot("pgoutput")
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "the slot is not lost", "dropped and created again")
}

// The slot was read from another server. Whether this one has taken its place is an operator's
// word, and what was deferred there is sent here then, before what is recovered.
func TestRecoverOnAnotherServer(t *testing.T) {
	b := lost(t)
	_, err := b.recover(anyOrder, func(o *repair.RecoverOptions) { o.SameData = true })
	b.wantStop(err, event.ExitUsage, "usage", "this is that one")
	b.exec(`UPDATE cdc_relay.slots SET system_id = 'another'`)
	b.exec(`UPDATE cdc_relay.retry SET system_id = 'another'`)
	b.insert("gap")
	before := b.remembered()
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "was read from system another", "--same-data")
	b.wantRemembered(before)
	report, err := b.recover(anyOrder, func(o *repair.RecoverOptions) { o.SameData = true })
	await.Must(t, err)
	if report.Moved != 1 || report.Held != 1 || report.Recovered != 1 {
		t.Errorf("%+v", report)
	}
	b.wantWaiting("before", "gap")
	b.wantText("0", `SELECT count(*)::text FROM cdc_relay.retry WHERE system_id = 'another'`)
	r := b.streaming()
	b.insert("after")
	r.waitSeen("after")
	b.wantSeen("after")
	r.endClean()
}

// A relay that is started meanwhile waits, and goes on with the new slot.
func TestRelayWaitsForRecover(t *testing.T) {
	b := lost(t)
	b.insert("gap")
	ended, unlock := b.copying(await.Context(t))
	r := b.run()
	await.Until(t, "the relay to wait", func() bool {
		return b.logs.FilterMessageSnippet("waiting for another relay, or a command").Len() == 1
	})
	unlock()
	await.Must(t, <-ended)
	b.insert("after")
	r.waitSeen("after")
	b.wantSeen("after")
	b.wantWaiting("before", "gap", "after")
	r.endClean()
}

// A loss was accepted, and the start that makes the new slot is cut off: the next one goes on
// without another word. Not so where recover was cut off, and not in a copy, which has nothing to
// recover.
func TestAcceptedLossWhoseStartIsCutOff(t *testing.T) {
	t.Run("accepted", func(t *testing.T) {
		b := lost(t)
		b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "slot_lost"))
		b.exec(`UPDATE cdc_relay.slots SET state = 'creating', leader = $1`, slot.Recovering)
		b.wantStop(b.run().wait(), event.ExitOperator, "slot_lost", "was being made again")
		b.exec(`UPDATE cdc_relay.slots SET leader = 'a relay'`)
		b.goesOn("after")
	})
	t.Run("copy", func(t *testing.T) {
		b := lost(t)
		b.exec(`UPDATE cdc_relay.slots SET timeline = 7`)
		b.exec(`INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason, until_xid) SELECT slot, system_id, incarnation, 'x', 'y', '5' FROM cdc_relay.slots`)
		stop := b.wantStop(b.run().wait(), event.ExitOperator, "slot_lost", "does not exist here")
		b.acceptFix(strings.ReplaceAll(stop.Fix, "--same-data", "--copy"))
		// a gap that the original has accepted is the original's to recover
		b.wantText("1 0", `SELECT count(*) || ' ' || count(*) FILTER (WHERE g.system_id = s.system_id) FROM cdc_relay.gap g, cdc_relay.slots s`)
		b.exec(`UPDATE cdc_relay.slots SET state = 'creating'`)
		b.wantStop(b.run().wait(), event.ExitUsage, "backfill")
		_, err := b.recover(anyOrder)
		b.wantStop(err, event.ExitUsage, "usage", "there is nothing to recover")
	})
}
