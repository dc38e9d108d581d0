// The watch for a shutdown of the server: it must be noticed at once, because the server waits for
// our last report (I10).

package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// ShutdownWatch notices that the server shuts down, from before START_REPLICATION until the session
// is over: the server waits for a walsender from the moment in which it streams, also while nobody
// reads from it yet.
type ShutdownWatch struct {
	shared   *Shared
	suspect  chan struct{} // a pool session was ended by the server: is it shutting down?
	renew    chan struct{} // the session is to be one of the term
	shutdown chan struct{} // closed when the server is shutting down
}

// NewShutdownWatch makes a watch for one session; it begins with Run.
func NewShutdownWatch(s *Shared) *ShutdownWatch {
	return &ShutdownWatch{shared: s, suspect: make(chan struct{}, 1), renew: make(chan struct{}, 1), shutdown: make(chan struct{})}
}

// Run keeps one idle session of the pool open, so that it is noticed at once when the server ends
// it: a fast shutdown waits for walsenders until they have reported its last record. When a new
// session is refused because the server is shutting down (57P03), a running session releases the
// slot, and the steps to one are abandoned.
func (w *ShutdownWatch) Run(ctx context.Context, abandon context.CancelCauseFunc) {
	for ctx.Err() == nil {
		refused := w.holdSession(ctx)
		if errors.Is(refused, errRenew) {
			continue
		}
		if ctx.Err() == nil && w.isShuttingDown(ctx, refused) {
			close(w.shutdown)
			abandon(ErrServerStopping)
			return
		}
		if !w.pause(ctx, refused) {
			return
		}
	}
}

// holdSession keeps a session of the pool open. It returns nil when that session has ended, or when
// another user of the pool suspects a shutdown; or why there was no session.
func (w *ShutdownWatch) holdSession(ctx context.Context) error {
	conn, err := w.shared.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-ctx.Done():
		case <-w.suspect:
			cancel(nil)
		case <-w.renew:
			cancel(errRenew)
		}
	}()
	_, _ = conn.Conn().WaitForNotification(ctx) //nolint:errcheck // any end of it is the answer
	if err := context.Cause(ctx); errors.Is(err, errRenew) {
		return err
	}
	return nil
}

// Renew replaces the session, once a term has begun: one from before is not marked as a leader's.
func (w *ShutdownWatch) Renew() { signal(w.renew) }

var errRenew = errors.New("the session is from before the term")

// isShuttingDown asks the server with a new connection, unless it has answered already, when it
// refused a session.
func (w *ShutdownWatch) isShuttingDown(ctx context.Context, refused error) bool {
	if code := source.SQLState(refused); code != "" {
		return code == shuttingDown
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := source.ConnectStream(ctx, w.shared.Cfg)
	if err == nil {
		source.CloseStream(conn)
		return false
	}
	return source.SQLState(err) == shuttingDown
}

const shuttingDown = "57P03" // cannot_connect_now

// pause waits before the next session: briefly when the last one had ended, and for seconds when
// there was none to have. A server without a free connection (53300), or one that refuses the
// login, is not asked more often. Its shutdown is noticed at once all the same: before it ends, a
// walsender asks for a report of its last record, and the reader then suspects a shutdown.
func (w *ShutdownWatch) pause(ctx context.Context, refused error) bool {
	if refused == nil {
		return source.Sleep(ctx, watchPause)
	}
	timer := time.NewTimer(cmp.Or(w.shared.Cfg.RefusedPause, refusedPause))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-w.suspect:
		return source.Sleep(ctx, watchPause)
	}
}

const (
	watchPause   = 200 * time.Millisecond
	refusedPause = 5 * time.Second
)
