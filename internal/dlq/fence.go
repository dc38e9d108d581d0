// The fence of a leader: each of its statements is bound to its epoch, so that a former leader
// changes nothing. The retry table, repair and retention use the same fence.

package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Term runs the statements of one leader, with its slot and epoch, under the fence and with a time
// limit. In production it is the MirrorStore.
type Term struct {
	DB       Querier // the pool; each statement is one round trip
	Slot     string
	SystemID string
	// Epoch is that of this term. Once the slot has a newer one, no statement reads or changes
	// anything.
	Epoch int64

	patience time.Duration // 0 means statementTimeout
}

// statementTimeout bounds on our side what statement_timeout bounds on the server: a server that no
// longer answers would otherwise keep one of the pool's four connections.
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

// ErrFenced says that a newer leader has raised the epoch. Nothing was read or changed, and this
// leader must not try again.
var ErrFenced = errors.New("fenced by a newer leader")

// Run runs one statement of a leader in one round trip, and calls each for every row whose first
// column is not NULL. The statement joins its answer to the fence, so an answer without any row
// means ErrFenced.
//
// The statement is planned again every time (QueryExecModeCacheDescribe). The tables grow from
// empty to a million rows and shrink again within minutes, and an old plan would scan the whole
// table for each of a thousand rows.
func Run(ctx context.Context, db Querier, slot string, epoch int64, sql string, args []any, each func(pgx.Rows) error) error {
	rows, err := db.Query(ctx, sql, append([]any{pgx.QueryExecModeCacheDescribe, slot, epoch}, args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	fenced := true
	for rows.Next() {
		fenced = false
		if each == nil || rows.RawValues()[0] == nil {
			continue
		}
		if err := each(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if fenced {
		return ErrFenced
	}
	return nil
}

// change runs a statement that writes and returns one row. sql is what follows WriteFence, and
// begins with a comma.
func (t *Term) change(ctx context.Context, what, sql string, args []any, into ...any) error {
	return t.run(ctx, what, WriteFence+sql, args, func(rows pgx.Rows) error {
		if len(into) == 0 {
			return nil
		}
		return rows.Scan(into...)
	})
}

// readRows runs a statement that only reads. sql is what follows ReadFence.
func (t *Term) readRows(ctx context.Context, what, sql string, args []any, each func(pgx.Rows) error) error {
	return t.run(ctx, what, ReadFence+sql, args, each)
}

func (t *Term) run(ctx context.Context, what, sql string, args []any, each func(pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(t.patience, statementTimeout))
	defer cancel()
	err := Run(ctx, t.DB, t.Slot, t.Epoch, sql, args, each)
	if errors.Is(err, ErrFenced) {
		return Fenced(t.Slot, t.Epoch)
	}
	return explain(what, err)
}

// Fenced makes the Stop of a leader that a newer one has replaced.
func Fenced(slot string, epoch int64) *event.Stop {
	return &event.Stop{
		Code: event.ExitFailure, Reason: "fenced",
		What: fmt.Sprintf("fenced: a newer leader of slot %q raised the epoch past %d", slot, epoch),
		Fix:  "start this relay again: it becomes the standby",
	}
}
