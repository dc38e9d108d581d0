// A leader's statements: each runs under the fence of the leader's epoch, and has a time limit.

package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// term runs a leader's statements: for its slot and epoch, under the fence, and with a time limit.
type term struct {
	db       Querier
	slot     string
	epoch    int64
	patience time.Duration // 0: statementTimeout
}

// statementTimeout bounds on our side what the server bounds with statement_timeout: a server that
// no longer answers bounds nothing, and would keep one of the pool's three connections.
const statementTimeout = 20 * time.Second

// Fence is how every statement of a leader begins; $1 is the slot, $2 the epoch. Its lock keeps the
// next leader from raising the epoch until the statement is committed. A read evaluates it only for
// the rows it returns: without rows nothing is locked, and nothing written.
const Fence = `WITH fence AS MATERIALIZED (SELECT FROM cdc_relay.slots WHERE slot = $1::text AND epoch = $2 FOR SHARE)`

// ours is the first column of every statement's rows: whether the epoch is still ours.
const ours = `EXISTS (SELECT FROM fence)`

// change runs a statement that gives one row.
func (t *term) change(ctx context.Context, what, sql string, args []any, into ...any) error {
	return t.read(ctx, what, sql, args, func(scan func(into ...any) error) error { return scan(into...) })
}

// read runs a statement, and calls each for every row; scan reads what follows ours.
func (t *term) read(ctx context.Context, what, sql string, args []any, each func(scan func(into ...any) error) error) error {
	if t.patience == 0 {
		t.patience = statementTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	rows, err := t.db.Query(ctx, Fence+sql, append([]any{again, t.slot, t.epoch}, args...)...)
	if err != nil {
		return explain(what, err)
	}
	defer rows.Close()
	for rows.Next() {
		var held bool
		if err := each(func(into ...any) error { return rows.Scan(append([]any{&held}, into...)...) }); err != nil {
			return explain(what, err)
		}
		if !held {
			return Fenced(t.slot, t.epoch)
		}
	}
	return explain(what, rows.Err())
}

// Fenced is the error of a leader that another one replaced.
func Fenced(slot string, epoch int64) *event.Stop {
	return &event.Stop{
		Code: event.ExitFailure, Reason: "fenced",
		What: fmt.Sprintf("fenced: a newer leader of slot %q raised the epoch past %d", slot, epoch),
		Fix:  "start this relay again: it becomes the standby",
	}
}
