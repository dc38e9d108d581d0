//go:build testall

// A standby is promoted in the place of the server that the slot was read from.

package replication

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
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

// A running relay goes on, and so does one that starts later, wherever the retry table's rows are.
func TestPromotion(t *testing.T) {
	t.Parallel()
	b := onPair(t, 17)
	r := b.settledRun("a")
	b.awaitReady()
	b.promote(false)
	b.insert("b")
	r.waitSeen("b")
	b.wantLogged("went on after a promotion")
	b.wantText("2", `SELECT timeline::text FROM cdc_relay.slots`)
	b.wantText("1", `SELECT count(*)::text FROM cdc_relay.audit WHERE action = 'promotion'`)

	await.Must(t, b.pair.Join(await.Context(t)))
	b.awaitReady()
	r.endClean()
	b.promote(true)
	b.goesOn("c")
	b.wantText("3", `SELECT timeline::text FROM cdc_relay.slots`)
}
