// The watch for a shutdown of the server: it must be noticed at once, because the server waits for
// our last report (I10).

package session

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// watchShutdown keeps one idle session of the pool open, so that it is noticed at once when the
// server ends it: a fast shutdown waits for walsenders until they have reported its last record.
// When a new session is refused because the server is shutting down (57P03), shutdown is closed.
func (se *Session) watchShutdown(ctx context.Context) error {
	for ctx.Err() == nil {
		se.holdSession(ctx)
		if ctx.Err() == nil && se.isShuttingDown(ctx) {
			close(se.shutdown)
			return nil
		}
		if !source.Sleep(ctx, 200*time.Millisecond) {
			return nil
		}
	}
	return nil
}

// holdSession keeps a session of the pool open. It returns when that session has ended, or when
// another user of the pool suspects a shutdown.
func (se *Session) holdSession(ctx context.Context) {
	conn, err := se.Pool.Acquire(ctx)
	if err != nil {
		return
	}
	defer conn.Release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-se.suspect:
			cancel()
		}
	}()
	_, _ = conn.Conn().WaitForNotification(ctx) //nolint:errcheck // any end of it is the answer
}

func (se *Session) isShuttingDown(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := source.ConnectStream(ctx, se.Cfg)
	if err == nil {
		source.CloseStream(conn)
		return false
	}
	return source.SQLState(err) == "57P03"
}
