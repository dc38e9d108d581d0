// Losses on days that nobody names: each was silent once.

package replication

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
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
	_, err := setup.Accept(await.Context(t), standby.cfg, setup.AcceptOptions{ID: stop.Finding})
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
