//go:build testall

// A standby is promoted in the place of the server that the slot was read from.

package replication

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// promotable is a bench on a primary whose standby keeps its failover slots.
type promotable struct {
	*bench
	pair  *pgserver.Pair
	moves int
}

func onPair(t *testing.T, version int) *promotable {
	t.Helper()
	bin, err := pgserver.VersionDir(version)
	await.Must(t, err)
	pair, err := pgserver.StartPair(await.Context(t), pgserver.Options{BinDir: bin, NoFsync: true})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, pair.Close()) })
	await.Must(t, pair.Primary.CreateDatabase(await.Context(t), "shop"))
	b := newBench(t, pair.Primary.URL("shop"))
	b.cfg.URL = several(t, b.url, pair.Addrs()...)
	return &promotable{bench: b, pair: pair}
}

// promote ends the primary and promotes the standby.
func (b *promotable) promote(planned bool) {
	b.t.Helper()
	await.Must(b.t, b.pair.End(planned))
	former, err := b.pair.Promote(await.Context(b.t))
	await.Must(b.t, err)
	await.Must(b.t, former.Close())
	b.url = b.pair.Primary.URL("shop")
	b.reconnect()
}

// awaitReady waits until the standby can take the primary's place for a relay that runs: the record
// names it, and it keeps the slot. It does once the slot has moved past what the standby never had.
func (b *promotable) awaitReady() {
	b.t.Helper()
	ctx := await.Context(b.t)
	await.Until(b.t, "the standby to be recorded", func() bool {
		return b.text(`SELECT standbys::text FROM cdc_relay.slots`) == "{"+b.pair.StandbySlot()+"}"
	})
	await.Until(b.t, "the standby to keep the slot", func() bool {
		b.exec(`SELECT pg_log_standby_snapshot()`)
		b.moves++
		b.insert(fmt.Sprintf("moves the slot %d", b.moves))
		var kept bool
		await.Must(b.t, pgserver.OnConn(ctx, b.pair.Standby.URL("postgres"), func(c *pgx.Conn) error {
			if _, err := c.Exec(ctx, `SELECT pg_reload_conf()`); err != nil { // wakes the worker
				return err
			}
			return c.QueryRow(ctx, `SELECT count(*) > 0 FROM pg_replication_slots WHERE synced AND NOT temporary`).Scan(&kept)
		}))
		return kept
	})
}

func (b *promotable) isFailover() bool {
	return b.text(`SELECT failover::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot) == "true"
}

// A running relay goes on, so does one that stands by, and one that starts later.
func TestPromotion(t *testing.T) {
	t.Parallel()
	b := onPair(t, 17)
	b.cfg.FailoverSlot = source.FailoverOff
	b.goesOn("a")
	if b.isFailover() {
		t.Error("off: the slot is a failover slot")
	}
	b.cfg.FailoverSlot = source.FailoverAuto
	b.goesOn("b")
	if b.isFailover() {
		t.Error("auto: the existing slot became a failover slot")
	}
	b.cfg.FailoverSlot = source.FailoverOn
	r := b.settledRun("c")
	if !b.isFailover() {
		t.Error("on: the existing slot did not become a failover slot")
	}
	other := b.run()
	other.waitPhase(slot.Standby)
	b.awaitReady()
	b.promote(false)
	b.insert("d")
	await.Until(t, "one of both to lead", func() bool { line := b.current(); return line != nil && slices.Contains(line.Seen(), "d") })
	b.wantText("2", `SELECT timeline::text FROM cdc_relay.slots`)
	b.wantText("1", `SELECT count(*)::text FROM cdc_relay.audit WHERE action = 'promotion' AND result LIKE '%come twice'`)
	if n := b.logs.FilterMessageSnippet("went on after a promotion").Len(); n != 1 {
		t.Errorf("%d relays say that they went on", n)
	}
	r.endClean()
	other.waitPhase(slot.Streaming)
	b.insert("e")
	other.waitReported("e")

	await.Must(t, b.pair.Join(await.Context(t)))
	b.awaitReady()
	other.endClean()
	b.promote(true)
	b.goesOn("f")
	b.wantText("3", `SELECT timeline::text FROM cdc_relay.slots`)
	// the last report of each of these stops has waited for the stream, which was read on for it
	if n := b.logs.FilterMessageSnippet("was not acknowledged").Len(); n > 0 {
		t.Errorf("%d stops were not acknowledged", n)
	}
}

// A standby that is named and down holds delivery back, which is said by its name. A stop does not
// wait for it, and without it the relay goes on.
func TestStandbyIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := onPair(t, 17)
	r := b.settledRun("a")
	if !b.isFailover() {
		t.Error("auto: the new slot is no failover slot")
	}
	_, err := b.pair.Standby.Stop("fast")
	await.Must(t, err)
	b.insert("b")
	waiting := func(want ...string) func() bool {
		return func() bool { return slices.Equal(r.s.Snapshot().WaitingForStandby, want) }
	}
	await.Until(t, "the standby to be named", waiting(b.pair.StandbySlot()))
	b.wantLogged("waiting for standby")
	if seen := b.current().Seen(); slices.Contains(seen, "b") {
		t.Errorf("events %q came, which the standby does not have", seen)
	}
	r.endClean()
	r = b.streaming()
	await.Must(t, b.pair.Standby.Start(await.Context(t)))
	r.waitReported("b")
	await.Until(t, "no standby to be waited for", waiting())
	r.endClean()
	if n := b.logs.FilterMessageSnippet("was not acknowledged").Len(); n > 1 {
		t.Errorf("%d stops were not acknowledged", n)
	}
}

// Failover slots are of PostgreSQL 17 and later.
func TestFailoverSlotOfAnOldServer(t *testing.T) {
	t.Parallel()
	bin, err := pgserver.VersionDir(14)
	await.Must(t, err)
	p, err := pgserver.Start(await.Context(t), pgserver.Options{BinDir: bin, NoFsync: true})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, p.Close()) })
	b := newBench(t, p.URL("postgres"))
	b.cfg.FailoverSlot = source.FailoverOn
	b.wantStop(b.run().wait(), event.ExitUsage, "config", "source.failover_slot", "17", "failover_slot to auto")
}
