//go:build testall

// A standby is promoted in the place of the server that the slot was read from.

package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// promotable is a bench on a primary whose standby keeps its failover slots.
type promotable struct {
	*bench
	pair *pgserver.Pair
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
	await.Must(b.t, b.pair.AwaitSynced(await.Context(b.t), b.cfg.Slot))
	await.Must(b.t, b.pair.End(planned))
	former, err := b.pair.Promote(await.Context(b.t))
	await.Must(b.t, err)
	await.Must(b.t, former.Close())
	b.url = b.pair.Primary.URL("shop")
	b.reconnect()
}

// awaitRecorded waits until the record names the standby.
func (b *promotable) awaitRecorded() {
	b.t.Helper()
	await.Until(b.t, "the standby to be recorded", func() bool {
		return b.text(`SELECT standbys::text FROM cdc_relay.slots`) == "{"+b.pair.StandbySlot()+"}"
	})
}

// A running relay goes on, and so does one that starts later.
func TestPromotion(t *testing.T) {
	t.Parallel()
	b := onPair(t, 17)
	r := b.settledRun("a")
	b.awaitRecorded()
	b.promote(false)
	b.insert("b")
	r.waitSeen("b")
	b.wantLogged("went on after a promotion")
	b.wantText("2", `SELECT timeline::text FROM cdc_relay.slots`)
	b.wantText("1", `SELECT count(*)::text FROM cdc_relay.audit WHERE action = 'promotion'`)
	r.endClean()

	await.Must(t, b.pair.Join(await.Context(t)))
	r = b.settledRun("c")
	b.awaitRecorded()
	r.endClean()
	b.promote(true)
	b.goesOn("d")
	b.wantText("3", `SELECT timeline::text FROM cdc_relay.slots`)
}
