// Recover that is refused, cut off, or of another server; accepted gaps; backfill.

package replication

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/recovery"
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
		change func(*recovery.Options)
		says   string
	}{
		"order":       {func(*recovery.Options) {}, "order unknown: track_commit_timestamp is off"},
		"column":      {by("nothing"), `has no column "nothing"`},
		"NULLs":       {by("payload"), `column "payload" of table public.outbox is NULL in 1 rows`},
		"expression":  {func(o *recovery.Options) { o.Where, o.Unordered = "id = ", true }, "the WHERE is not a condition"},
		"two":         {func(o *recovery.Options) { o.Where, o.Unordered = "true) OR (true", true }, "the WHERE is not a condition"},
		"statement":   {func(o *recovery.Options) { o.Where, o.Unordered = "true); DROP TABLE other; --", true }, "the WHERE is not a condition"},
		"text":        {func(o *recovery.Options) { o.Where, o.Unordered = "id", true }, "the WHERE is not a condition"},
		"no function": {func(o *recovery.Options) { o.Where, o.Unordered = "1 / length(substr(id, 1, 0)) > 0", true }, "the WHERE fails at a row"},
	} {
		_, err := b.recover(c.change)
		b.wantStop(err, event.ExitUsage, "usage", c.says)
		if got := b.remembered(); got != before {
			t.Errorf("%s: it was changed from %s to %s", name, before, got)
		}
	}
	b.wantText("0", `SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
	report, err := b.recover(func(o *recovery.Options) { o.DryRun = true })
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

// What a recover leaves that is cut off at any point: a relay refuses the slot, and another run
// starts over.
func TestRecoverCutOff(t *testing.T) {
	b := lost(t)
	b.insert("gap")
	before := b.text(`SELECT p::text FROM cdc_relay.progress p`)
	// a row of the retry table's is locked, so the copy waits, and the slot is there
	locker := b.connect()
	tx, err := locker.Begin(await.Context(t))
	await.Must(t, err)
	_, err = tx.Exec(await.Context(t), `LOCK TABLE cdc_relay.retry IN EXCLUSIVE MODE`)
	await.Must(t, err)
	p := b.through()
	ended := make(chan error, 1)
	go func() {
		_, err := b.recover(anyOrder)
		ended <- err
	}()
	await.Until(t, "the copy to wait", func() bool {
		return b.text(`SELECT count(*)::text FROM pg_locks WHERE NOT granted AND relation = 'cdc_relay.retry'::regclass`) == "1"
	})
	p.Cut() // as a kill, to the server
	if err := <-ended; err == nil {
		t.Fatal("it has succeeded")
	}
	await.Must(t, tx.Rollback(await.Context(t)))
	await.Must(t, p.Restore())
	b.wantText("1", `SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
	b.wantText(before, `SELECT p::text FROM cdc_relay.progress p`)
	b.wantWaiting("before")
	b.wantStop(b.run().wait(), event.ExitOperator, "slot_lost", "was being made again", "cdc-relay recover")
	_, err = b.recover(anyOrder)
	await.Must(t, err)
	b.wantWaiting("before", "gap")
	b.streaming().endClean()
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

// The slot was read from another server. Whether this one has taken its place is an operator's
// word, and what was deferred there is sent here then, before what is recovered.
func TestRecoverOnAnotherServer(t *testing.T) {
	b := lost(t)
	_, err := b.recover(anyOrder, func(o *recovery.Options) { o.SameData = true })
	b.wantStop(err, event.ExitUsage, "usage", "this is that one")
	b.exec(`UPDATE cdc_relay.slots SET system_id = 'another'`)
	b.exec(`UPDATE cdc_relay.retry SET system_id = 'another'`)
	b.insert("gap")
	before := b.remembered()
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "was read from system another", "--same-data")
	b.wantRemembered(before)
	report, err := b.recover(anyOrder, func(o *recovery.Options) { o.SameData = true })
	await.Must(t, err)
	if report.Moved != 1 || report.Held != 1 || report.Recovered != 1 || report.FromXID != nil {
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
	tx, err := b.connect().Begin(await.Context(t))
	await.Must(t, err)
	_, err = tx.Exec(await.Context(t), `LOCK TABLE cdc_relay.retry IN EXCLUSIVE MODE`)
	await.Must(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := b.recover(anyOrder)
		ended <- err
	}()
	await.Until(t, "the copy to wait", func() bool {
		return b.text(`SELECT count(*)::text FROM pg_locks WHERE NOT granted AND relation = 'cdc_relay.retry'::regclass`) == "1"
	})
	r := b.run()
	await.Until(t, "the relay to wait", func() bool {
		return b.logs.FilterMessageSnippet("waiting for another relay, or a command").Len() == 1
	})
	await.Must(t, tx.Rollback(await.Context(t)))
	await.Must(t, <-ended)
	b.insert("after")
	r.waitSeen("after")
	b.wantSeen("after")
	b.wantWaiting("before", "gap", "after")
	r.endClean()
}

// An operator has accepted a gap, and the relay has gone on.
func TestRecoverAcceptedGap(t *testing.T) {
	b := lost(t)
	b.insert("gap")
	from := b.text(`SELECT xmin::text FROM outbox WHERE id = 'gap'`)
	b.exec(`INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason, from_lsn, from_xid)
		SELECT slot, system_id, incarnation, 'x', 'y', pg_current_wal_lsn(), $1::text::xid8 FROM cdc_relay.slots`, from)
	b.exec(`UPDATE cdc_relay.slots SET state = 'adopt'`)
	r := b.streaming()
	b.insert("after")
	r.waitSeen("after")
	_, err := b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "is in use by")
	r.endClean()
	b.waitFree()
	epoch := b.text(`SELECT epoch::text FROM cdc_relay.slots`)
	report, err := b.recover(func(o *recovery.Options) { o.Unordered, o.Where = true, "id = 'gap'" })
	await.Must(t, err)
	if !report.NewerSent || report.Recovered != 1 {
		t.Errorf("%+v", report)
	}
	b.wantWaiting("before", "gap", "after")
	if b.text(`SELECT epoch::text FROM cdc_relay.slots`) == epoch {
		t.Error("the epoch was not raised")
	}
	b.wantText("true", `SELECT (recovered_at IS NOT NULL AND left_out)::text FROM cdc_relay.gap`)
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "no accepted gap is open")

	// One that is accepted, and of which no slot is the end yet.
	b.dropSlot()
	from = b.text(`SELECT pg_current_xact_id()::text`)
	b.insert("second gap")
	b.exec(`INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason, from_xid) SELECT slot, system_id, incarnation, 'x', 'y', $1::text::xid8 FROM cdc_relay.slots`, from)
	b.exec(`UPDATE cdc_relay.slots SET state = 'adopt'`)
	// one that fails leaves the operator's word as it is
	b.exec(`ALTER TABLE cdc_relay.audit ADD CONSTRAINT no_more CHECK (false) NOT VALID`)
	if _, err = b.recover(anyOrder); err == nil {
		t.Fatal("it has succeeded")
	}
	b.wantText("adopt, 1", `SELECT state || ', ' || (SELECT count(*) FROM cdc_relay.gap WHERE recovered_at IS NULL) FROM cdc_relay.slots`)
	b.wantText("0", `SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
	b.wantWaiting("before", "gap", "after")
	b.exec(`ALTER TABLE cdc_relay.audit DROP CONSTRAINT no_more`)
	_, err = b.recover(anyOrder)
	await.Must(t, err)
	b.wantWaiting("before", "gap", "after", "second gap")
	b.wantText("0", `SELECT count(*)::text FROM cdc_relay.gap WHERE recovered_at IS NULL`)
}

// Rows that a condition leaves out are only in the table: a gap is noted, or marked, that has them.
func TestRecoverNotesWhatItLeavesOut(t *testing.T) {
	for name, accepted := range map[string]bool{"not accepted": false, "accepted": true} {
		t.Run(name, func(t *testing.T) {
			b := lost(t)
			b.insert("left out")
			b.insert("gap")
			if accepted {
				b.exec(`INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason) SELECT slot, system_id, incarnation, 'x', 'y' FROM cdc_relay.slots`)
				b.exec(`UPDATE cdc_relay.slots SET state = 'adopt'`)
			}
			report, err := b.recover(func(o *recovery.Options) { o.Unordered, o.Where = true, "id = 'gap'" })
			await.Must(t, err)
			if report.LeftOut == 0 {
				t.Errorf("%+v", report)
			}
			b.wantText("true", `SELECT string_agg((left_out AND recovered_at IS NOT NULL AND coalesce(from_xid::text::bigint <= o.xmin::text::bigint, true)
				AND until_xid::text::bigint > o.xmin::text::bigint)::text, ' ') FROM cdc_relay.gap, (SELECT xmin FROM outbox WHERE id = 'left out') o`)
		})
	}
}

// The first slot is made, and rows from before it are sent.
func TestBackfill(t *testing.T) {
	t.Parallel()
	for where, want := range map[string][]string{"true": {"1", "2", "3"}, "id > '1'": {"2", "3"}, "false": {}} {
		t.Run(where, func(t *testing.T) {
			b := shared(t)
			b.exec(`INSERT INTO outbox SELECT i, '{}' FROM generate_series(1, 3) i`)
			b.deferAll()
			report, err := recovery.Backfill(await.Context(t), b.cfg, recovery.Options{Sink: nowhere{}, Where: where, OrderBy: "id"})
			if await.Must(t, err); report.Recovered != int64(len(want)) || report.LeftOut != int64(3-len(want)) || report.Repeated != 0 {
				t.Errorf("%+v", report)
			}
			b.wantWaiting(want...)
			r := b.streaming()
			b.insert("after")
			r.waitSeen("after")
			b.wantSeen("after")
			b.wantWaiting(append(want, "after")...)
			r.endClean()
			_, err = recovery.Backfill(await.Context(t), b.cfg, recovery.Options{Sink: nowhere{}, Where: where, OrderBy: "id"})
			b.wantStop(err, event.ExitUsage, "usage", "has been in use")
		})
	}
}

// Rows of several tables come in one order. Rows of a transaction come in the order of its
// statements, also of its subtransactions and wherever they are stored.
func TestRecoverOrder(t *testing.T) {
	b := shared(t)
	b.exec(`DROP TABLE outbox`)
	b.exec(`CREATE SEQUENCE place`)
	const columns = ` (id text, payload text, at timestamptz DEFAULT now(), n bigint DEFAULT nextval('place'), u uuid DEFAULT lpad(to_hex(currval('place')), 32, '0')::uuid)`
	b.exec(`CREATE TABLE outbox` + columns)
	b.exec(`CREATE TABLE other` + columns + ` PARTITION BY HASH (id)`)
	b.exec(`CREATE TABLE other_0 PARTITION OF other FOR VALUES WITH (MODULUS 2, REMAINDER 0)`)
	b.exec(`CREATE TABLE other_1 PARTITION OF other FOR VALUES WITH (MODULUS 2, REMAINDER 1)`)
	b.cfg.Tables = append(b.cfg.Tables, b.cfg.Tables[0])
	b.cfg.Tables[1].Name = "other"
	b.streaming().endClean()
	b.dropSlot()
	b.exec(`ALTER TABLE outbox ALTER payload SET STORAGE PLAIN`)
	b.exec(`INSERT INTO outbox VALUES ('earlier', repeat('x', 5000))`)
	want := []string{"earlier"}
	for i := range 5 {
		tx, err := b.conn.Begin(await.Context(t))
		await.Must(t, err)
		// The third row has no room in the page of the first one, and has in the page before.
		for j, into := range []string{"outbox VALUES ('ID', repeat('y', 7000))", "other VALUES ('ID')", "outbox VALUES ('ID', repeat('z', 2000))"} {
			id := fmt.Sprintf("%d.%d", i, j)
			sql := "INSERT INTO " + strings.ReplaceAll(into, "ID", id)
			if j == 1 {
				sql = "SAVEPOINT s; " + sql + "; RELEASE s"
			}
			_, err := tx.Exec(await.Context(t), sql)
			await.Must(t, err)
			want = append(want, id)
		}
		await.Must(t, tx.Commit(await.Context(t)))
	}
	b.wantText("true", `SELECT ((SELECT ctid FROM outbox WHERE id = '0.2') < (SELECT ctid FROM outbox WHERE id = '0.0'))::text`)
	for _, column := range []string{"at", "n", "u"} {
		report, err := b.recover(by(column))
		if await.Must(t, err); report.Order != `column "`+column+`"` {
			t.Errorf("%+v", report)
		}
		b.wantWaiting(want...)
		b.exec(`DELETE FROM cdc_relay.retry`)
		b.exec(`UPDATE cdc_relay.progress SET settled_xid = NULL`)
		b.dropSlot()
	}
	_, err := b.recover(by("payload"))
	b.wantStop(err, event.ExitUsage, "usage", "cannot be compared with other tables")
}
