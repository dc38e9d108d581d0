package replication

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

const remadeOutbox = `CREATE TABLE outbox (id text PRIMARY KEY, payload jsonb)`

func ofAllTables(t *testing.T) *bench {
	t.Helper()
	b := shared(t)
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	return b
}

// A table that took the name of ours under a publication of all tables stops the relay before its
// first row. Once the new one is accepted the rows of both are events, under whatever name.
func TestTableReplacedWhileRunning(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]bool{"renamed": true, "dropped": false} {
		t.Run(name, func(t *testing.T) {
			b := ofAllTables(t)
			r := b.settledRun("a")
			b.exec(`BEGIN`)
			want := []string{"of the new one"}
			if keep {
				b.exec(`ALTER TABLE outbox RENAME TO old`)
				b.exec(`INSERT INTO old VALUES ('of the old one', '{}')`)
				want = append([]string{"of the old one"}, want...)
			} else {
				b.exec(`DROP TABLE outbox`)
			}
			b.exec(remadeOutbox)
			b.insert("of the new one")
			b.exec(`COMMIT`)
			b.wantStop(r.endsBefore("of the new one"), event.ExitOperator, "table_replaced")
			// The next start: a commit may be sent a moment before the catalogue shows it, and then
			// the stream's own Stop offers two fixes.
			stop := b.wantStop(b.run().endsBefore("of the new one"), event.ExitOperator, "table_replaced")
			b.runFix(stop)
			if keep {
				b.exec(`INSERT INTO old VALUES ('later', '{}')`)
				want = append(want, "later")
			}
			b.delivers(want...)
		})
	}
}

// Rows of a table that lost its name to another one wait in the slot while no relay runs.
func TestTableThatLostItsNameWhileDown(t *testing.T) {
	t.Parallel()
	t.Run("of all tables, adopted", func(t *testing.T) {
		b := ofAllTables(t)
		b.goesOn("a")
		b.renameAndRemake()
		b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "table_replaced"))
		r := b.run()
		r.waitSeen("of the old one", "of the new one")
		r.waitChecked()
		r.endClean()
	})
	t.Run("adopted", func(t *testing.T) {
		b := shared(t)
		b.goesOn("a")
		b.renameAndRemake()
		b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "table"))
		r := b.run()
		r.waitSeen("of the old one")
		b.insert("b")
		r.waitSeen("b")
		r.endClean()
	})
	t.Run("adopted in another system", func(t *testing.T) {
		b := shared(t)
		b.goesOn("a")
		b.renameAndRemake()
		b.exec(`ALTER PUBLICATION p ADD TABLE outbox`)
		b.exec(`UPDATE cdc_relay.slots SET system_id = '1' WHERE slot = $1`, b.cfg.Slot)
		b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "slot_moved"))
		r := b.run()
		b.insert("b")
		r.waitSeen("b")
		if seen := b.current().Seen(); slices.Contains(seen, "of the old one") {
			t.Error("the OIDs of another system were believed")
		}
		r.endClean()
	})
}

func (b *bench) renameAndRemake() {
	b.t.Helper()
	b.exec(`ALTER TABLE outbox RENAME TO old`)
	b.exec(`INSERT INTO old VALUES ('of the old one', '{}')`)
	b.exec(remadeOutbox)
	b.insert("of the new one")
}

func (r *running) endsBefore(id string) error {
	r.b.t.Helper()
	await.Until(r.b.t, "the stream to end", func() bool {
		select {
		case <-r.done:
			return true
		default:
		}
		line := r.b.current()
		return line != nil && slices.Contains(line.Seen(), id)
	})
	select {
	case <-r.done:
		return r.err
	default:
		r.b.t.Fatalf("%s is sent", id)
		return nil
	}
}

// A table that was listed for others takes the configured name, as in a blue/green change of
// tables: its rows may be events now.
func TestListedTableTakesTheName(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE outbox_new (LIKE outbox INCLUDING ALL)`)
	b.exec(`CREATE PUBLICATION p FOR TABLE outbox, outbox_new`)
	r := b.settledRun("a")
	b.exec(`INSERT INTO outbox_new (id, payload) VALUES ('of others', '{}')`)
	b.insert("b")
	r.waitSeen("a", "b")
	b.exec(`BEGIN`)
	b.exec(`ALTER TABLE outbox RENAME TO outbox_old`)
	b.exec(`ALTER TABLE outbox_new RENAME TO outbox`)
	b.insert("c")
	b.exec(`COMMIT`)
	b.wantStop(r.endsBefore("c"), event.ExitOperator, "table")
	b.runFix(b.wantStop(b.run().endsBefore("c"), event.ExitOperator, "table"))
	b.delivers("c")
}
