// Rolling deployments: tables and prefixes that one relay of a slot has in its configuration and
// another one has not.

package replication

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// alsoOf is a bench for a relay that has one table more in its configuration.
func (b *bench) alsoOf(table string) *bench {
	o := b.another()
	o.cfg.Tables = append(slices.Clone(b.cfg.Tables), b.cfg.Tables[0])
	o.cfg.Tables[1].Name = table
	return o
}

func (b *bench) makeTable(table string) {
	b.t.Helper()
	b.exec(fmt.Sprintf(`CREATE TABLE %s (id text PRIMARY KEY, payload jsonb)`, table))
}

func (b *bench) insertInto(table, id string) {
	b.t.Helper()
	b.exec(fmt.Sprintf(`INSERT INTO %s VALUES ($1, '{}')`, table), id)
}

// sends is what is remembered of the publication, as text.
func (b *bench) sends() string {
	b.t.Helper()
	return b.text(`SELECT sends::text FROM cdc_relay.slots WHERE slot = $1`, b.cfg.Slot)
}

// A table joins the publication, and a relay that has it stands by while one that has not leads.
// The first row of the table stops the leader, and the standby delivers it. What the standby did
// before it led has changed nothing.
func TestRollout(t *testing.T) {
	b := shared(t)
	b.makeTable("outbox2")
	next := b.alsoOf("outbox2")
	old := b.settledRun("a")
	b.exec(`ALTER PUBLICATION p ADD TABLE outbox2`)
	before := b.sends()
	standby := next.run()
	standby.waitPhase(slot.Standby)
	warned := func() []observer.LoggedEntry { return b.logs.FilterMessageSnippet("will stop at the next row").All() }
	await.Until(t, "the leader to warn", func() bool { return len(warned()) > 0 })
	if after := b.sends(); after != before || b.logs.FilterMessageSnippet("table added").Len() != 0 {
		t.Errorf("a standby changed what is remembered from %s to %s", before, after)
	}
	if why := fmt.Sprint(warned()[0].ContextMap()["reason"]); len(warned()) != 1 || !strings.Contains(why, "public.outbox2") {
		t.Errorf("warned of %s beforehand", why)
	}
	b.wantFinding("not configured", "lists table public.outbox2", "source.tables")
	b.insert("b")
	old.waitSeen("b")
	at := b.confirmedFlush()
	b.exec(`BEGIN; INSERT INTO outbox VALUES ('c', '{}'); INSERT INTO outbox2 VALUES ('d', '{}'); COMMIT`)
	b.insert("after")
	stop := b.wantStop(old.endsBefore("after"), event.ExitOperator, schema.NotConfigured)
	for _, want := range []string{"public.outbox2", "source.tables"} {
		if !strings.Contains(stop.Error(), want) {
			t.Errorf("%q is not in: %v", want, stop)
		}
	}
	standby.waitSeen("c", "d", "after")
	b.insertInto("outbox2", "e")
	standby.waitReported("e")
	standby.endClean()
	next.wantSeen("c", "d", "after", "e")
	b.wantBefore("outbox")
	b.wantBefore("outbox2") // also d is sent: the slot had not passed it when the table was added
	added := b.logs.FilterMessageSnippet("table added").All()
	if len(added) != 1 || announced(t, added[0]) < at {
		t.Errorf("announced %v, want once, from a position after %s", added, at)
	}
}

// announced is the position that a line of the log names.
func announced(t *testing.T, line observer.LoggedEntry) pglogrepl.LSN {
	t.Helper()
	at, err := pglogrepl.ParseLSN(fmt.Sprint(line.ContextMap()["lsn"]))
	await.Must(t, err)
	return at
}

// The rollout is rolled back. The relay without the table leads again and goes on, up to the
// table's next row. Then the newer configuration delivers that, or an operator says that it is not
// an event, and it is passed over from then on.
func TestRolloutIsRolledBack(t *testing.T) {
	each(t, map[string]string{
		"listed":     `CREATE PUBLICATION p FOR TABLE outbox, outbox2 WITH (publish = 'insert')`,
		"all tables": `CREATE PUBLICATION p FOR ALL TABLES WITH (publish = 'insert')`,
	}, func(t *testing.T, b *bench, sql string) {
		b.makeTable("outbox2")
		b.exec(sql)
		next := b.alsoOf("outbox2")
		r := next.settledRun("a")
		b.insertInto("outbox2", "b")
		r.waitReported("b")
		r.endClean()

		b.goesOn("c")
		b.wantFinding("not configured", "has relayed table public.outbox2", "source.tables")
		b.insertInto("outbox2", "d")
		b.insert("e")
		for range 2 {
			b.wantStop(b.run().endsBefore("e"), event.ExitOperator, schema.NotConfigured)
		}
		next.delivers("d", "e")

		b.insertInto("outbox2", "skipped")
		stop := b.wantStop(b.run().wait(), event.ExitOperator, schema.NotConfigured, "has relayed table public.outbox2")
		b.runFix(stop)
		b.insert("f")
		b.goesOn("g")
		b.wantSeen("f", "g")
		if got := b.text(`SELECT who || ' ' || action || ' ' || result FROM cdc_relay.audit WHERE slot = $1`, b.cfg.Slot); !strings.Contains(got, "accept") ||
			!strings.Contains(got, "public.outbox2") {
			t.Errorf("the audit has %s", got)
		}
		// Configured again, it is an event again, and the word about it is spent.
		next.goesOn("h")
		b.insertInto("outbox2", "i")
		b.wantStop(b.run().wait(), event.ExitOperator, schema.NotConfigured)
	})
}

// A publication that listed other tables when the slot was first used keeps them to itself: their
// rows are passed over, also after a restart and when they come as partitions. One that is listed
// later stops the relay.
func TestPublicationSharedWithAnotherProgram(t *testing.T) {
	b := shared(t)
	b.makeTable("theirs")
	b.makeTable("later")
	b.exec(`CREATE TABLE parted (id text, payload jsonb) PARTITION BY LIST (id)`)
	b.exec(`CREATE TABLE parted_x PARTITION OF parted FOR VALUES IN ('x')`)
	b.exec(`CREATE PUBLICATION p FOR TABLE outbox, theirs, parted`)
	b.wantLine(check.LevelOK, "other tables", "public.theirs")
	b.init(setup.InitOptions{})
	for _, id := range []string{"a", "b"} {
		r := b.streaming()
		b.insertInto("theirs", "their "+id)
		b.insertInto("parted", "x")
		b.insert(id)
		r.waitReported(id)
		r.endClean()
		if got := strings.Join(b.current().Seen(), " "); got != id {
			t.Errorf("events %s, want %s", got, id)
		}
	}
	if said := b.logs.FilterMessageSnippet("lists other tables").All(); len(said) != 1 ||
		!strings.Contains(fmt.Sprint(said[0].ContextMap()["tables"]), "public.parted, public.theirs") {
		t.Errorf("said %v, want it once", said)
	}
	b.wantLine(check.LevelOK, "other tables", "public.parted, public.theirs")
	b.insertInto("parted", "x")
	b.exec(`DROP TABLE parted_x`) // their housekeeping, before the relay comes to the row
	r := b.streaming()
	b.exec(`ALTER PUBLICATION p ADD TABLE later`)
	b.insertInto("later", "c")
	b.runFix(b.wantStop(r.wait(), event.ExitOperator, schema.NotConfigured))
	b.goesOn("d")
}

// A prefix is announced by the leader, with the position; when it leaves the configuration, the
// next of its messages stops the relay until it is back, or an operator has said that they are not
// events.
func TestPrefixLeavesTheConfiguration(t *testing.T) {
	b := shared(t)
	without := b.another()
	b.goesOn("a")
	before := b.confirmedFlush()
	b.relayMessages()
	r := b.streaming()
	added := b.logs.FilterMessageSnippet("message prefix added").All()
	if len(added) != 1 || added[0].ContextMap()["message_prefix"] != "orders" || announced(t, added[0]) != before {
		t.Errorf("announced %v, want orders from %s", added, before)
	}
	b.exec(message("b", "1"))
	r.waitReported("b")
	r.endClean()

	without.goesOn("c")
	without.wantFinding("not configured", `prefix "orders"`, "source.message_prefix")
	b.exec(message("d", "1"))
	b.wantStop(without.run().wait(), event.ExitOperator, schema.NotConfigured)
	b.delivers("d")
	b.exec(message("skipped", "1"))
	without.runFix(b.wantStop(without.run().wait(), event.ExitOperator, schema.NotConfigured))
	without.goesOn("e")
	if got := without.current().Seen(); slices.Contains(got, "skipped") {
		t.Errorf("events %v", got)
	}
}
