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
// no longer answers bounds nothing, and would keep one of the pool's four connections.
const statementTimeout = 20 * time.Second

// Every statement of a leader begins with a fence: WriteFence if it writes, ReadFence if not. $1 is
// the slot, $2 the epoch. What a statement reads or writes is joined to its fence.
//
// The lock of WriteFence keeps the next leader from raising the epoch until the statement is
// committed, and a statement that has to wait for a raise sees the new epoch. So whatever a former
// leader wrote is there when the next one counts the rows, and nothing follows.
//
// ReadFence locks nothing: a row lock takes a transaction id, so each read would end with a flush
// of the WAL and wait for the synchronous standby. It is sound without the lock:
//   - A read never mixes two terms, because one statement has one snapshot. If the snapshot has our
//     epoch, it has no row of a newer leader, which writes after its raise is committed.
//   - If a raise is committed after the snapshot, the answer is old. A lock would not prevent that:
//     it ends with the statement, before the answer is used. Whatever is written because of the
//     answer has WriteFence. What is published is stopped by no fence.
//   - What is read is durable: a row is visible once its commit was flushed, and the raise of our
//     epoch, a commit too, came after those of all former leaders.
//   - A standby may lack our own commits, but no connection is to one (source.ConnectPool).
const (
	WriteFence = `WITH fence AS MATERIALIZED (SELECT FROM cdc_relay.slots WHERE slot = $1::text AND epoch = $2 FOR SHARE)`
	ReadFence  = `WITH fence AS MATERIALIZED (SELECT FROM cdc_relay.slots WHERE slot = $1::text AND epoch = $2)`
)

// ours is the first column of every statement's rows: whether the epoch is still ours.
const ours = `EXISTS (SELECT FROM fence)`

// change runs a statement that writes and gives one row.
func (t *term) change(ctx context.Context, what, sql string, args []any, into ...any) error {
	return t.run(ctx, what, WriteFence+sql, args, func(scan func(into ...any) error) error { return scan(into...) })
}

// read runs a statement that only reads. A former leader finds out by a row: without rows it does
// not.
func (t *term) read(ctx context.Context, what, sql string, args []any, each func(scan func(into ...any) error) error) error {
	return t.run(ctx, what, ReadFence+sql, args, each)
}

// run runs a statement, and calls each for every row; scan reads what follows ours.
func (t *term) run(ctx context.Context, what, sql string, args []any, each func(scan func(into ...any) error) error) error {
	if t.patience == 0 {
		t.patience = statementTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	rows, err := t.db.Query(ctx, sql, append([]any{again, t.slot, t.epoch}, args...)...)
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
