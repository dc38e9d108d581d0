package inbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// hurried is a database with a synchronous standby that hangs, below a driver that cancels COMMIT
// when its time is over: the server gives up the wait, and answers as if all was well.
type hurried struct {
	recorded bool // the event was, before
	end      context.CancelFunc
}

func (h *hurried) maxConnections() int                        { return 1 }
func (h *hurried) begin(context.Context) (transaction, error) { return h, nil }
func (h *hurried) callHandler(context.Context, Message) error { return nil }
func (h *hurried) stateAfterHandler(context.Context) txState  { return txOpen }
func (h *hurried) rollback(context.Context)                   {}
func (h *hurried) discardConnection(context.Context)          {}
func (h *hurried) commit(context.Context) error               { h.end(); return nil }
func (h *hurried) queryRow(_ context.Context, _ string, _ []any, into ...any) error {
	*into[0].(*bool) = true
	return nil
}

func (h *hurried) exec(context.Context, string, ...any) (int64, error) {
	if h.recorded {
		return 0, nil
	}
	return 1, nil
}

// A COMMIT that was cancelled while it waited for the standby is no success: a promotion would undo
// it behind a message that is acknowledged. Nor is the record of an event seen for good by it.
func TestCommitThatWasCancelled(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1/") // does not connect
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	in, err := New(Config{
		Service: "mails", Pool: pool, Registerer: prometheus.NewRegistry(), Timeout: time.Hour,
		Handler: func(context.Context, pgx.Tx, Message) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, recorded := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		in.db = &hurried{recorded, cancel}
		got, err := in.attempt(ctx, Message{ID: "1"})
		var lost *lostError
		var away *unavailableError
		if recorded && !errors.As(err, &away) || !recorded && (got != outcomeFailed || !errors.As(err, &lost)) {
			t.Errorf("recorded before %v: %v, %v", recorded, got, err)
		}
		in.db = &hurried{recorded, func() {}}
		if got, err := in.attempt(t.Context(), Message{ID: "1"}); err != nil || recorded != (got == outcomeDuplicate) {
			t.Errorf("with time, recorded before %v: %v, %v", recorded, got, err)
		}
	}
}
