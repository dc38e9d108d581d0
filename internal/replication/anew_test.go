package replication

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

const remadeOutbox = `CREATE TABLE outbox (id text PRIMARY KEY, payload jsonb)`

// ofAllTables is a bench whose publication has every table there will be, so that no table made anew is a reason to stop.
func ofAllTables(t *testing.T) *bench {
	t.Helper()
	b := shared(t)
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	return b
}

// waitRemembered returns once the slot's row knows the table that is the outbox now, as it or as one that was.
func (b *bench) waitRemembered() {
	b.t.Helper()
	var oid uint32
	if err := b.conn.QueryRow(await.Context(b.t), `SELECT 'outbox'::regclass::oid`).Scan(&oid); err != nil {
		b.t.Fatal(err)
	}
	await.Until(b.t, "the new table to be remembered", func() bool {
		rec, err := readRecord(await.Context(b.t), b.conn, b.cfg.Slot)
		if err != nil {
			b.t.Fatal(err)
		}
		t := rec.Sends.Tables[quoteTable(b.cfg.Tables[0])]
		return t.OID == oid || slices.Contains(t.Also, oid)
	})
}

// A table made anew is found by the catalogue before it has a row, and renamed before it gets one: its row comes under
// another name, to a session that never saw it under ours.
func TestTableMadeAnewThenRenamed(t *testing.T) {
	b := ofAllTables(t)
	r := b.settledRun("a")
	began := r.s.Snapshot().Since
	b.exec(`DROP TABLE outbox`)
	b.exec(remadeOutbox)
	b.waitRemembered()
	await.Until(t, "a session that knows it", func() bool { return r.sessions() == 2 && r.s.Snapshot().Phase == Streaming })
	if since := r.s.Snapshot().Since; !since.After(began) {
		t.Error("it is streaming, without a reporter, from one session to the next")
	}
	b.exec(`ALTER TABLE outbox RENAME TO outgoing`)
	b.exec(`INSERT INTO outgoing VALUES ('b', '{}')`)
	r.waitSeen("b")
	r.waitChecked()
	if n := r.sessions(); n != 2 {
		t.Errorf("%d sessions", n)
	}
	r.endClean()
}

// The stream shows a table under our name, it is renamed, and the session is lost before the catalogue was asked: the
// next session goes on knowing it, and so does the next process.
func TestTableSeenInTheStreamThenRenamed(t *testing.T) {
	b := ofAllTables(t)
	p := b.through()
	r := b.settledRun("a")
	b.exec(`DROP TABLE outbox`)
	b.exec(remadeOutbox)
	b.insert("b")
	r.waitSeen("b")
	b.exec(`ALTER TABLE outbox RENAME TO outgoing`)
	b.exec(remadeOutbox)
	p.Cut()
	b.exec(`INSERT INTO outgoing VALUES ('c', '{}')`)
	if err := p.Mend(); err != nil {
		t.Fatal(err)
	}
	r.waitSeen("c")
	r.crash(p)
	b.waitFree()
	b.exec(`INSERT INTO outgoing VALUES ('d', '{}')`)
	b.insert("e")
	r = b.run()
	r.waitSeen("d", "e")
	r.endClean()
}

// No row of a table that took the name passes before the table is remembered.
func TestTableIsRememberedBeforeItsRowsPass(t *testing.T) {
	b := ofAllTables(t)
	r := b.settledRun("a")
	lock, err := b.connect().Begin(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(await.Context(t), `SELECT FROM cdc_relay.slots WHERE slot = $1 FOR UPDATE`, b.cfg.Slot); err != nil {
		t.Fatal(err)
	}
	b.exec(`DROP TABLE outbox`)
	b.exec(remadeOutbox)
	b.insert("b")
	await.Until(t, "a statement that waits for the lock", func() bool {
		return b.text(`SELECT count(*)::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
			AND query LIKE 'UPDATE cdc_relay.slots SET sends%'`) != "0"
	})
	if seen := b.current().seen(); slices.Contains(seen, "b") {
		t.Errorf("passed: %v", seen)
	}
	if err := lock.Rollback(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	r.waitSeen("b")
	r.endClean()
}

// Rows of a table that lost its name to another one wait in the slot while no relay runs.
func TestTableThatLostItsNameWhileDown(t *testing.T) {
	t.Parallel()
	t.Run("taken up", func(t *testing.T) {
		b := ofAllTables(t)
		b.settledRun("a").endClean()
		b.renameAndRemake()
		r := b.run()
		r.waitSeen("of the old one", "of the new one")
		r.waitChecked()
		r.endClean()
	})
	t.Run("adopted", func(t *testing.T) {
		b := shared(t)
		b.settledRun("a").endClean()
		b.renameAndRemake()
		b.runMend(wantStop(t, b.run().wait(), outbox.ExitOperator, "table"))
		r := b.run()
		r.waitSeen("of the old one")
		b.insert("b")
		r.waitSeen("b")
		r.endClean()
	})
	t.Run("adopted in another system", func(t *testing.T) {
		b := shared(t)
		b.settledRun("a").endClean()
		b.renameAndRemake()
		b.exec(`ALTER PUBLICATION p ADD TABLE outbox`)
		b.exec(`UPDATE cdc_relay.slots SET system_id = '1', state = 'adopt' WHERE slot = $1`, b.cfg.Slot)
		r := b.run()
		b.insert("b")
		r.waitSeen("b")
		if seen := b.current().seen(); slices.Contains(seen, "of the old one") {
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

// What was switched off and on again between two looks leaves every OID as it was.
func TestPublicationAlteredThereAndBack(t *testing.T) {
	alteredThereAndBack(t, map[string][2]string{
		"inserts": {`ALTER PUBLICATION p SET (publish = 'delete')`, `ALTER PUBLICATION p SET (publish = 'insert')`},
	})
}

func alteredThereAndBack(t *testing.T, changes map[string][2]string) {
	t.Parallel()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(`DROP TABLE outbox`)
			b.exec(`CREATE TABLE outbox (id text, payload jsonb) PARTITION BY HASH (id)`)
			b.exec(`CREATE TABLE leaf PARTITION OF outbox FOR VALUES WITH (MODULUS 1, REMAINDER 0)`)
			b.settledRun("a").endClean()
			changed := b.text(`SELECT pg_current_wal_insert_lsn()::text`)
			b.exec(change[0])
			if name != "name" { // where the publication is missing the row ends the slot
				b.insert("lost")
			}
			b.exec(change[1])
			var stop *outbox.Stop
			for range 2 { // it is not taken for granted the second time
				stop = wantStop(t, b.run().wait(), outbox.ExitOperator, "publication")
				b.wantGap(stop, changed, changed)
				if !strings.Contains(stop.What, "was altered") {
					t.Errorf("it is not said what happened: %s", stop.What)
				}
			}
			b.wantFinding("publication", "was altered", "adopt")
			b.runMend(stop)
			r := b.settledRun("b")
			b.exec(change[0] + `; ` + change[1]) // at once: the mend of a relay that looks in between is another
			b.runMend(wantStop(t, r.wait(), outbox.ExitOperator, "publication"))
			b.goesOn("c")
		})
	}
}
