// Recover that is refused, cut off, or of another server; accepted gaps; backfill.

package replication

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
)

// A recover that ends as it copies: a relay refuses the slot, and another run starts over.
func TestRecoverCutOff(t *testing.T) {
	type ending struct {
		slots, says string
		end         func(interrupt func(), p *netproxy.Proxy)
	}
	each(t, map[string]ending{
		// as a kill, to the server
		"cut off": {"1", "was being made again", func(_ func(), p *netproxy.Proxy) { p.Cut() }},
		// gives its slot back: the slot is lost as before
		"interrupted": {"0", "no longer exists", func(interrupt func(), _ *netproxy.Proxy) { interrupt() }},
	}, func(t *testing.T, b *bench, c ending) {
		b.losesItsSlot()
		b.insert("gap")
		before := b.text(`SELECT p::text FROM cdc_relay.progress p`)
		p := b.through()
		ctx, interrupt := context.WithCancel(await.Context(t))
		ended, unlock := b.copying(ctx)
		c.end(interrupt, p)
		if err := <-ended; err == nil {
			t.Fatal("it has succeeded")
		}
		unlock()
		await.Must(t, p.Restore())
		b.wantText(c.slots, `SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
		b.wantText(before, `SELECT p::text FROM cdc_relay.progress p`)
		b.wantWaiting("before")
		b.wantStop(b.run().wait(), event.ExitOperator, "slot_lost", c.says, "cdc-relay recover")
		_, err := b.recover(anyOrder)
		await.Must(t, err)
		b.wantWaiting("before", "gap")
		b.streaming().endClean()
	})
}

// copying is a recover whose slot is there, and whose copy waits for a lock of the retry table.
func (b *bench) copying(ctx context.Context) (ended <-chan error, unlock func()) {
	b.t.Helper()
	unlock = b.begin(`LOCK TABLE cdc_relay.retry IN EXCLUSIVE MODE`)
	done := make(chan error, 1)
	go func() {
		_, err := repair.Recover(ctx, b.cfg, repair.RecoverOptions{Sink: nowhere{}, Unordered: true, Reason: "test"})
		done <- err
	}()
	await.Until(b.t, "the copy to wait", func() bool {
		return b.text(`SELECT count(*)::text FROM pg_locks WHERE NOT granted AND relation = 'cdc_relay.retry'::regclass`) == "1"
	})
	return done, unlock
}

// An operator has accepted a gap, and the relay has gone on.
func TestRecoverAcceptedGap(t *testing.T) {
	b := lost(t)
	b.insert("gap")
	b.exec(`INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason, from_lsn)
		SELECT slot, system_id, incarnation, 'x', 'y', pg_current_wal_lsn() FROM cdc_relay.slots`)
	b.exec(`UPDATE cdc_relay.slots SET state = 'adopt'`)
	r := b.streaming()
	b.insert("after")
	r.waitSeen("after")
	_, err := b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "is in use by")
	r.endClean()
	b.waitFree()
	epoch := b.text(`SELECT epoch::text FROM cdc_relay.slots`)
	report, err := b.recover(func(o *repair.RecoverOptions) { o.Unordered, o.Where = true, "id = 'gap'" })
	await.Must(t, err)
	if !report.NewerSent || report.Recovered != 1 {
		t.Errorf("%+v", report)
	}
	b.wantWaiting("before", "gap", "after")
	if b.text(`SELECT epoch::text FROM cdc_relay.slots`) == epoch {
		t.Error("the epoch was not raised")
	}
	b.wantText("true", `SELECT (recovered_at IS NOT NULL)::text FROM cdc_relay.gap`)
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "no accepted gap is open")

	// One that is accepted, and of which no slot is the end yet.
	b.dropSlot()
	b.insert("second gap")
	b.exec(`INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason) SELECT slot, system_id, incarnation, 'x', 'y' FROM cdc_relay.slots`)
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

// The first slot is made, and rows from before it are sent.
func TestBackfill(t *testing.T) {
	t.Parallel()
	for where, want := range map[string][]string{"true": {"1", "2", "3"}, "id > '1'": {"2", "3"}, "false": {}} {
		t.Run(where, func(t *testing.T) {
			b := shared(t)
			b.exec(`INSERT INTO outbox SELECT i, '{}' FROM generate_series(1, 3) i`)
			b.deferAll()
			report, err := repair.Backfill(await.Context(t), b.cfg, repair.RecoverOptions{Sink: nowhere{}, Where: where, OrderBy: "id"})
			if await.Must(t, err); report.Recovered != int64(len(want)) || report.LeftOut != int64(3-len(want)) {
				t.Errorf("%+v", report)
			}
			b.wantWaiting(want...)
			r := b.streaming()
			b.insert("after")
			r.waitSeen("after")
			b.wantSeen("after")
			b.wantWaiting(append(want, "after")...)
			r.endClean()
			_, err = repair.Backfill(await.Context(t), b.cfg, repair.RecoverOptions{Sink: nowhere{}, Where: where, OrderBy: "id"})
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
		report, err := b.recover(by(column), func(o *repair.RecoverOptions) { o.OrderByBegin = true }, allRows)
		if await.Must(t, err); report.Order != `column "`+column+`"` {
			t.Errorf("%+v", report)
		}
		b.wantWaiting(want...)
		b.exec(`DELETE FROM cdc_relay.retry`)
		b.dropSlot()
	}
	_, err := b.recover(by("payload"), allRows)
	b.wantStop(err, event.ExitUsage, "usage", "cannot be compared with other tables")
}
