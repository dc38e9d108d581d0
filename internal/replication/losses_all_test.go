//go:build testall

package replication

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

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
	r.waitPhase(slot.Streaming)
	if after := of(); after <= before {
		t.Errorf("the slot is of incarnation %s, and was of %s", after, before)
	}
	r.endClean()
}
