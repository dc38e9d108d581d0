//go:build testall

package retention

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// TestAgeByTheCommit: without a column the commit's time counts. A row whose commit's time the
// server does not know, or no longer, is as old as is known of it.
func TestAgeByTheCommit(t *testing.T) {
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pg.Close() })
	r := rigOn(t, pg, time.Hour, outboxTable)
	r.cfg.Tables[0].Time = nil
	r.put("not known")
	r.exec(`ALTER SYSTEM SET track_commit_timestamp = on`)
	_, err = pg.Stop("fast")
	r.must(err)
	r.must(pg.Start(r.ctx))
	r.pool.Reset()
	r.must(CheckTime(r.ctx, r.pool, r.cfg.Tables, r.cfg.Keep))
	now, ended := r.now()
	r.put("known")
	r.settle(r.slot)
	r.want(r.left(), "known", "not known")
	r.cfg.Keep, r.samples = time.Microsecond, nil
	r.want(r.left(), "not known")
	r.cfg.Keep = time.Hour
	r.samples = samples{{at: now.Add(-time.Hour), xid: ended}}
	r.want(r.left())
}
