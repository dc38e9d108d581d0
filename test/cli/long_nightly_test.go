//go:build nightly

// What takes a minute, or a server that freezes its databases.

package cli

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// A recover that is frozen in its copy holds no transaction for longer than a minute: VACUUM and
// the creation of slots wait for those.
func TestFrozenRecover(t *testing.T) {
	t.Parallel()
	d, _ := onOwnDay(t)
	r := d.rig
	r.more = ""
	r.losesItsSlot()
	r.frozenRecover("recover", "--unordered")
	eventually(t, func() string {
		return ask[string](r, `SELECT coalesce(string_agg(concat_ws(' ', pid, state, query), E'\n'), '') FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)`)
	})
	r.lockEnds()
	r.ok("recover", "--unordered")
	relay := r.start()
	wantSent(t, relay, "a", 2)
	relay.Stop(t)
}

// TestRecoverAfterManyTransactions: what was sent stays sent when ids of transactions begin again
// from the lowest, by their 32 bits.
func TestRecoverAfterManyTransactions(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	pg, err := pgserver.Start(ctx, pgserver.Options{NoFsync: true, Settings: map[string]string{"track_commit_timestamp": "on", "autovacuum_naptime": "1s"}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	must(t, pg.CreateDatabase(ctx, "shop"))
	d := newDay(on(t, pg.URL("shop")))
	d.rig.more = "" // the rows stay
	d.start()
	d.sql(`INSERT INTO outbox (id) VALUES ({a}), ({b}), ({c})`)
	d.delivered()
	for i, name := range []string{"d", "e", "f"} {
		d.stop()
		d.sql(`SELECT pg_drop_replication_slot('{pub}')`)
		must(t, pg.SkipTransactions(ctx, uint32(i+1)*1100%4096)) // 1.15e9, 2.3e9, 3.5e9
		d.sql(`INSERT INTO outbox (id) VALUES ({` + name + `})`)
		if out := d.rig.ok("recover", "--unordered"); !strings.Contains(out, "recovered: 1 row copied") {
			t.Errorf("after %d: %s", i, out)
		}
		d.start()
		d.delivered()
		await.Until(t, "the databases to be frozen", func() bool {
			return ask[int](d.rig, `SELECT max(age(datfrozenxid))::int FROM pg_database`) < 900_000_000
		})
	}
	d.stop()
	for name := range d.all {
		if n := strings.Count(d.output, d.id(name)); n != 1 {
			t.Errorf("row %s is sent %d times", name, n)
		}
	}
}
