// A transaction that waits for this process, for hours perhaps, and that the server ends if the
// process is frozen.

package recovery

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// aliveEvery is how often the server is told that the process lives: it gives up a client that
// asks for nothing for a minute.
const aliveEvery = 10 * time.Second

// attended is the connection of such a transaction.
type attended struct {
	mu   sync.Mutex // whoever uses conn has it
	conn *pgx.Conn
	end  context.CancelFunc
	told sync.WaitGroup
}

// tell begins to tell the server, while nothing else is asked, until close.
func (a *attended) tell(ctx context.Context) {
	ctx, a.end = context.WithCancel(ctx)
	a.told.Go(func() {
		for source.Sleep(ctx, aliveEvery) {
			if a.mu.TryLock() {
				_, _ = a.conn.PgConn().Exec(ctx, "SELECT 1").ReadAll() //nolint:errcheck // the next statement finds out
				a.mu.Unlock()
			}
		}
	})
}

// close ends the connection, with its transaction.
func (a *attended) close() {
	if a.end != nil {
		a.end()
		a.told.Wait()
	}
	closeConn(a.conn)
}
