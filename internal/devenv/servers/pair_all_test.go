//go:build testall

package servers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// A failover slot comes along with each promotion, and the former primary's own, which nothing
// drops, keeps the next one from being copied.
func TestPairKeepsAFailoverSlot(t *testing.T) {
	for _, version := range []int{17, 18} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			ctx := await.Context(t)
			bin, err := pgserver.VersionDir(version)
			await.Must(t, err)
			pair, err := pgserver.StartPair(ctx, pgserver.Options{BinDir: bin, NoFsync: true})
			await.Must(t, err)
			t.Cleanup(func() { await.Must(t, pair.Close()) })
			var made string
			await.Must(t, pair.Primary.Query(ctx, &made, "SELECT slot_name FROM pg_create_logical_replication_slot('kept', 'pgoutput', false, false, true)"))
			for _, planned := range []bool{true, false} {
				advancing, done := context.WithCancel(ctx)
				go advance(advancing, pair.Primary)
				await.Must(t, pair.AwaitSynced(ctx, "kept"))
				done()
				await.Must(t, pair.End(planned))
				former, err := pair.Promote(ctx)
				await.Must(t, err)
				await.Must(t, former.Close())
				var usable bool
				await.Must(t, pair.Primary.Query(ctx, &usable, "SELECT synced AND failover FROM pg_replication_slots WHERE slot_name = 'kept'"))
				if !usable {
					t.Fatalf("the slot did not come along (planned %v)", planned)
				}
				await.Must(t, pair.Join(ctx))
			}
		})
	}
}

// advance is a reader of the slot that has nothing to do.
func advance(ctx context.Context, on *pgserver.Postgres) {
	_ = processes.Poll(ctx, 100*time.Millisecond, func() (bool, error) { //nolint:errcheck // it ends with the test
		var at string // no answer is the end of the server
		_ = on.Query(ctx, &at, "SELECT (pg_replication_slot_advance('kept', pg_current_wal_lsn())).end_lsn::text")
		return false, nil
	})
}
