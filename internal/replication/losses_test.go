// Losses on days that nobody names: each was silent once.

package replication

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/accept"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// What a standby with a mistake in its configuration finds cannot be accepted while a relay leads.
// What comes into the record all the same, by hand, the leader takes back. So it does not accept
// beforehand what becomes of the slot weeks later, and goes on comparing with what it remembers.
func TestAcceptedWhileARelayLeads(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	standby := b.another()
	standby.cfg.Publication = "p2"
	stop := b.wantStop(standby.run().wait(), event.ExitOperator, "slot_moved")
	_, err := accept.Run(await.Context(t), standby.cfg, accept.Options{ID: stop.Finding})
	b.wantStop(err, event.ExitUsage, "usage", "is active for", "stop it first")
	b.wantText(slot.StateReady, `SELECT state FROM cdc_relay.slots WHERE slot = $1`, b.cfg.Slot)
	b.exec(`UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = $1`, b.cfg.Slot)
	await.Until(t, "the leader to take it back", func() bool {
		return b.text(`SELECT state FROM cdc_relay.slots WHERE slot = $1`, b.cfg.Slot) == slot.StateReady
	})
	await.Until(t, "the line about it", func() bool { return b.logs.FilterMessageSnippet("there is nothing to accept").Len() > 0 })
	b.exec(`UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = $1`, b.cfg.Slot)
	b.exec(`ALTER PUBLICATION p SET (publish = '')`)
	b.insert("hidden")
	b.exec(`ALTER PUBLICATION p SET (publish = 'insert')`)
	b.wantStop(r.wait(), event.ExitOperator, "publication")
}

// PostgreSQL does not let an unlogged table into a publication, but a partition of one that is
// there it does. Rows that go to it, or to a foreign table, are in no WAL.
func TestPartitionThatIsNotLogged(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"before the start": false, "while it runs": true} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(`DROP TABLE outbox`)
			b.exec(`CREATE TABLE outbox (id text, payload jsonb) PARTITION BY LIST (id)`)
			b.exec(`CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT`)
			b.exec(`CREATE TABLE outbox_x PARTITION OF outbox FOR VALUES IN ('hidden')`)
			var r *running
			if late {
				r = b.settledRun("a")
			}
			b.exec(`ALTER TABLE outbox_x SET UNLOGGED`)
			if !late {
				r = b.run()
			}
			b.wantStop(r.wait(), event.ExitOperator, "table", "public.outbox_x (UNLOGGED)")
			b.exec(`ALTER TABLE outbox_x SET LOGGED`)
			b.goesOn("b")
		})
	}
}

func TestPartitionThatIsAForeignTable(t *testing.T) {
	b := shared(t)
	u, err := url.Parse(b.url)
	await.Must(t, err)
	for _, sql := range []string{
		`DROP TABLE outbox`, `CREATE TABLE outbox (id text, payload jsonb) PARTITION BY LIST (id)`, `CREATE TABLE archive (id text, payload jsonb)`,
		`CREATE EXTENSION postgres_fdw`,
		fmt.Sprintf(`CREATE SERVER archive FOREIGN DATA WRAPPER postgres_fdw OPTIONS (dbname '%s', host '%s', port '%s')`,
			strings.TrimPrefix(u.Path, "/"), u.Hostname(), u.Port()),
		`CREATE FOREIGN TABLE outbox_x PARTITION OF outbox FOR VALUES IN ('hidden') SERVER archive OPTIONS (table_name 'archive')`,
	} {
		b.exec(sql)
	}
	b.wantStop(b.run().wait(), event.ExitOperator, "table", "public.outbox_x (a foreign table)")
}

// The relay's own tables are made UNLOGGED, to spare WAL: a crash would empty them after the slot
// has moved.
func TestRetryTableThatIsNotLogged(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	b.exec(`ALTER TABLE cdc_relay.retry SET UNLOGGED`)
	stop := b.wantStop(r.wait(), event.ExitOperator, "schema")
	b.wantStop(b.run().wait(), event.ExitOperator, "schema")
	b.wantFinding("schema", "UNLOGGED (retry)", "SET LOGGED")
	for _, sql := range strings.Split(stop.Fix, "; ")[:1] {
		b.exec(sql)
	}
	b.goesOn("b")
}

// A loss is accepted, and the new slot cannot be made at once. The slot's row stays, with its
// incarnation, by which events that wait are ordered, and with the operator's word; another relay's
// teardown leaves the schema to it.
func TestAcceptedLossWhoseSlotCannotBeMade(t *testing.T) {
	b := alone(t)
	b.goesOn("a")
	b.exec(`UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = $1`, b.cfg.Slot)
	b.goesOn("b")
	b.deferRow()
	other := b.another()
	other.cfg.Slot += "_b"
	other.cfg.NoBackfill = true
	other.goesOn("x")
	of := func() string {
		return b.text(`SELECT incarnation || ', epoch ' || epoch FROM cdc_relay.slots WHERE slot = $1`, b.cfg.Slot)
	}
	before := of()
	b.dropSlot()
	b.exec(`UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = $1`, b.cfg.Slot)
	b.exec(`SELECT pg_create_physical_replication_slot('full_' || i) FROM generate_series(1, current_setting('max_replication_slots')::int
		- (SELECT count(*)::int FROM pg_replication_slots)) i`)
	t.Cleanup(func() {
		b.exec(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE 'full\_%'`)
	})
	b.wantStop(b.run().wait(), event.ExitFailure, "no_slot")
	await.Must(t, setup.Teardown(await.Context(t), other.cfg, false))
	b.exec(`DELETE FROM outbox`)
	r := b.run() // in the room that the teardown made
	r.waitPhase(survey.Streaming)
	if after := of(); after <= before {
		t.Errorf("the slot is of incarnation %s, and was of %s", after, before)
	}
	r.endClean()
}

// The slot's row is gone, by hand. The incarnation of the next one is above that of the events that
// wait; and teardown of another relay keeps the schema for them.
func TestIncarnationGoesOnWithoutTheSlotsRow(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE PUBLICATION p FOR TABLE outbox`)
	b.goesOn("a")
	b.exec(`UPDATE cdc_relay.slots SET incarnation = 7 WHERE slot = $1`, b.cfg.Slot)
	b.deferRow()
	b.exec(`DELETE FROM cdc_relay.progress`)
	b.exec(`DELETE FROM cdc_relay.slots`)
	other := b.another()
	other.cfg.Slot += "_b"
	other.cfg.NoBackfill = true
	other.goesOn("x")
	other.waitNoWalsender()
	await.Must(t, setup.Teardown(await.Context(t), other.cfg, false))
	b.accept()
	b.goesOn("b")
	b.wantText("8", `SELECT incarnation::text FROM cdc_relay.slots WHERE slot = $1`, b.cfg.Slot)
}

// deferRow is an event in the retry table, of the slot's incarnation.
func (b *bench) deferRow() {
	b.t.Helper()
	b.exec(`INSERT INTO cdc_relay.retry (slot, system_id, incarnation, commit_lsn, idx, n, ordering_group, exchange_or_topic, dest, hash, keyed, ordered, attempts, bytes,
			class, reason, error, destination, commit_time, event_time, id, payload_kind, payload)
		SELECT slot, system_id, incarnation, '0/1', 0, nextval('cdc_relay.row_number'), 1, 1, 1, 1, true, true, 0, 1, '', '', '', '', now(), now(), 'waits', 0, '{}'
		FROM cdc_relay.slots WHERE slot = $1`, b.cfg.Slot)
}

// The configuration names another slot, and what waits in the old one is read by nobody. The tables
// do not show it where rows are deleted at once.
func TestSlotRenamedInTheConfiguration(t *testing.T) {
	b := shared(t)
	b.goesOn("a")
	b.insert("waits")
	b.exec(`DELETE FROM outbox`)
	old := b.cfg.Slot
	b.cfg.Slot += "_v2"
	b.wantStop(b.run().wait(), event.ExitUsage, "backfill", old)
	b.cfg.Slot = old
	b.delivers("waits")
	b.cfg.Slot += "_v2" // another relay, next to one that is stopped
	b.cfg.NoBackfill = true
	b.goesOn("b")
	b.wantLogged("although nobody reads the old one")
}

// A table joins the publication while a transaction is open that has inserted into it. PostgreSQL
// does not send that row, so it is said when the table is announced.
func TestTableAddedUnderAnOpenTransaction(t *testing.T) {
	b := shared(t)
	b.makeTable("outbox2")
	b.goesOn("a")
	commit := b.begin(`INSERT INTO outbox2 VALUES ('early', '{}')`)
	b.exec(`ALTER PUBLICATION p ADD TABLE outbox2`)
	two := b.alsoOf("outbox2")
	r := two.settledRun("b")
	b.wantLogged("are still open")
	commit()
	b.insertInto("outbox2", "late")
	r.waitSeen("late")
	if slices.Contains(two.current().Seen(), "early") {
		t.Error("PostgreSQL sends it now: the warning has no cause")
	}
	r.endClean()
}
