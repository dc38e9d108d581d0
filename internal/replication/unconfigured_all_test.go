//go:build testall

package replication

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// What the leader warns of can be ignored while it leads: it asks again before it stops.
func TestIgnoredWhileARelayLeads(t *testing.T) {
	b := shared(t)
	b.makeTable("outbox2")
	b.relayMessages()
	b.goesOn("a")
	b.cfg.Messages = decode.Messages{}
	r := b.streaming()
	b.exec(`ALTER PUBLICATION p ADD TABLE outbox2`)
	warned := func() []observer.LoggedEntry { return b.logs.FilterMessageSnippet("will stop at the next row").All() }
	await.Until(t, "two warnings", func() bool { return len(warned()) == 2 })
	for _, line := range warned() {
		b.runFix(&event.Stop{Fix: fmt.Sprint(line.ContextMap()["fix"])})
	}
	b.insertInto("outbox2", "ignored")
	b.exec(message("ignored", "1"))
	b.exec(message("ignored", "1"))
	b.insert("b")
	r.waitReported("b")
	r.endClean()
	b.wantSeen("b")
}

// What the slot's row does not say is no word of an operator: a row that says adopt, or is gone,
// has nothing passed over.
func TestLeftOutTableWhoseRecordChanges(t *testing.T) {
	each(t, map[string]string{
		"adopt": `UPDATE cdc_relay.slots SET state = 'adopt'`,
		"gone":  `DELETE FROM cdc_relay.slots`,
	}, func(t *testing.T, b *bench, change string) {
		b.makeTable("outbox2")
		b.exec(`CREATE PUBLICATION p FOR ALL TABLES WITH (publish = 'insert')`)
		b.alsoOf("outbox2").goesOn("a")
		r := b.settledRun("b")
		b.exec(change)
		b.insertInto("outbox2", "c")
		b.insert("after")
		b.wantStop(r.endsBefore("after"), event.ExitOperator, schema.NotConfigured)
	})
}

// A mistake in the new configuration: it names a table that is not sent, or no longer names the one
// that was. The former never leads and leaves the leader alone; the latter stops at the first row.
func TestTypoInARollout(t *testing.T) {
	b := shared(t)
	b.makeTable("outbox2")
	wrong := b.alsoOf("outbox2") // not in the publication
	r := b.settledRun("a")
	before := b.sends()
	b.wantStop(wrong.run().wait(), event.ExitOperator, "publication")
	b.insert("b")
	r.waitSeen("b")
	if after := b.sends(); after != before {
		t.Errorf("what is remembered went from %s to %s", before, after)
	}
	r.endClean()

	b.exec(`ALTER PUBLICATION p ADD TABLE outbox2`)
	wrong.cfg.Tables = wrong.cfg.Tables[1:]
	b.insert("c")
	b.wantStop(wrong.run().endsBefore("none"), event.ExitOperator, schema.NotConfigured)
	b.delivers("c")
}

// A publication of all tables, or of a schema, sends what nobody asked for: those rows are passed
// over, whenever their table came. A table that is listed as well is not one of them.
func TestForeignTablesOfAWidePublication(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"all tables": `CREATE PUBLICATION p FOR ALL TABLES`,
		"schema":     `CREATE PUBLICATION p FOR TABLES IN SCHEMA public`,
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			if name == "all tables" {
				b.exec(sql)
			} else if !b.since15(sql) {
				return
			}
			r := b.settledRun("a")
			b.makeTable("theirs")
			b.exec(`BEGIN; CREATE TABLE staging (id int); INSERT INTO staging VALUES (1); COMMIT`)
			b.exec(`DROP TABLE staging`) // perhaps before the relay comes to its row
			b.insertInto("theirs", "their")
			b.insert("b")
			r.waitSeen("b")
			if name == "schema" {
				b.exec(`ALTER PUBLICATION p ADD TABLE theirs`)
				b.insertInto("theirs", "again")
				b.wantStop(r.wait(), event.ExitOperator, schema.NotConfigured)
				return
			}
			r.endClean()
		})
	}
}

// A table that was taken out of the publication again, before the relay came to its rows, was sent
// when they were committed.
func TestRowsOfATableThatWasListed(t *testing.T) {
	b := shared(t)
	b.makeTable("outbox2")
	b.goesOn("a")
	b.exec(`ALTER PUBLICATION p ADD TABLE outbox2`)
	b.insertInto("outbox2", "b")
	b.exec(`ALTER PUBLICATION p DROP TABLE outbox2`)
	stop := b.wantStop(b.run().wait(), event.ExitOperator, schema.NotConfigured)
	_, ignore, _ := strings.Cut(stop.Fix, "; if they are not: ")
	b.runFix(&event.Stop{Fix: ignore})
	b.goesOn("c")
}

// What another leader wrote between the check and the write is not overwritten.
func TestOnlyTheLeaderRemembers(t *testing.T) {
	b := shared(t)
	b.goesOn("a")
	pool := b.pool()
	ctx := await.Context(t)
	rec, err := slot.ReadRecord(ctx, pool, b.cfg.Slot)
	await.Must(t, err)
	before := b.sends()
	next := rec.Remembered()
	next.Prefixes = []string{"new"}
	if err := slot.RememberSends(ctx, pool, &b.cfg, rec.Epoch-1, rec, next, 1); !errors.Is(err, slot.ErrRememberedChanged) {
		t.Errorf("under a former epoch: %v", err)
	}
	other := *rec
	other.SendsText = `{}`
	if err := slot.RememberSends(ctx, pool, &b.cfg, rec.Epoch, &other, next, 1); !errors.Is(err, slot.ErrRememberedChanged) {
		t.Errorf("after another check: %v", err)
	}
	if after := b.sends(); after != before {
		t.Errorf("%s became %s", before, after)
	}
}
