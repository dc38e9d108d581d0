package replication

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
)

// term is the time under one epoch of ours: its line, and how far it may report and did.
type term struct {
	epoch       int64
	raised      string // record.Raised, of the epoch
	incarnation int64  // of the slot that was read
	line        Line

	// ceiling is durable in cdc_relay.progress before it is stored here, so that what is in the table is never below
	// it. Invariant: reported <= ceiling.
	ceiling atomic.Uint64
	// reported is the slot's position when this term began, or the highest flush position this process may have written
	// to the slot since. Nobody else writes under this epoch, so the slot is never above it.
	reported atomic.Uint64

	// proven is the term's start, or the watermark when the last raise of the ceiling was sent: a database that has our epoch and
	// that ceiling has all by which what is below was settled.
	proven atomic.Uint64

	newest seenAgain // the last transaction that was read whole: the reader's, and between sessions nobody's

	cancel context.CancelFunc
	done   chan struct{}
	err    error // of line.Run, valid after done
}

// continues reports whether nobody led, and the slot was neither made anew nor adopted, since the term began.
func (t *term) continues(rec *record) bool {
	return t.epoch == rec.Epoch && t.raised == rec.Raised && t.incarnation == rec.Incarnation
}

// newTerm starts the lanes of a new line at start, under the epoch of rec. reported is the slot's position: start is higher
// when this process has settled more than the slot has kept.
func newTerm(ctx context.Context, pool *pgxpool.Pool, c *Config, rec *record, start, reported pglogrepl.LSN) (*term, error) {
	line, err := c.NewLine(ctx, Term{Start: start, Epoch: rec.Epoch, Incarnation: rec.Incarnation, SystemID: rec.SystemID, Pool: pool})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &term{epoch: rec.Epoch, raised: rec.Raised, incarnation: rec.Incarnation, line: line, cancel: cancel, done: make(chan struct{})}
	t.ceiling.Store(uint64(rec.Ceiling))
	t.reported.Store(uint64(reported))
	t.proven.Store(uint64(start)) // the raise of the epoch came after all by which that was settled
	go func() {
		defer close(t.done)
		t.err = t.line.Run(ctx)
	}()
	return t, nil
}

// end stops the lanes and waits for them. What is unsettled stays in the slot. A nil term has ended already.
func (t *term) end() {
	if t == nil {
		return
	}
	t.cancel()
	<-t.done
}

// raiseEpoch makes every statement of a former leader change nothing from now on. A former leader's session that holds
// the row (stopped inside a statement) is ended: by its name and role it is one of ours.
func raiseEpoch(ctx context.Context, pool *pgxpool.Pool, c *Config) (int64, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	for try := 0; ; try++ {
		var epoch int64
		unblock := time.AfterFunc(time.Second, func() { endBlockers(ctx, pool, c, conn.Conn().PgConn().PID()) })
		err := conn.QueryRow(ctx, `UPDATE cdc_relay.slots SET epoch = epoch + 1, leader = $2, changed_at = now()
			WHERE slot = $1 AND state = 'ready' RETURNING epoch`, c.Slot, leaderName()).Scan(&epoch)
		unblock.Stop()
		switch {
		case err == nil:
			return epoch, nil
		case isNoRows(err):
			return 0, errPrepareAgain
		case pgCode(err) == "55P03" && try < 3: // lock_timeout
			continue
		}
		return 0, fmt.Errorf("raise epoch: %w", err)
	}
}

// endBlockers ends the sessions of ours that keep the session pid waiting.
func endBlockers(ctx context.Context, pool *pgxpool.Pool, c *Config, pid uint32) {
	tag, err := pool.Exec(ctx, `SELECT pg_terminate_backend(a.pid) FROM unnest(pg_blocking_pids($1)) b(pid)
		JOIN pg_stat_activity a ON a.pid = b.pid WHERE a.application_name = $2 AND a.usename = current_user`,
		int32(pid), c.applicationName())
	if err == nil && tag.RowsAffected() > 0 {
		c.Log.Warn("ended sessions of a former leader that kept the fence waiting", zap.Int64("sessions", tag.RowsAffected()))
	}
}

// raiseCeiling makes it durable that positions up to the current end of the WAL may be reported. It changes nothing when
// we are fenced (a Stop), or do not hold the slot (errNotHolder). good (0: not known) is written along.
func raiseCeiling(ctx context.Context, pool *pgxpool.Pool, c *Config, t *term, pid uint32, good pglogrepl.LSN) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var ceiling pglogrepl.LSN
	settled := uint64(t.line.Watermark().LSN) // before the statement is sent
	err := pool.QueryRow(ctx, `WITH fence AS (SELECT FROM cdc_relay.slots WHERE slot = $1 AND epoch = $2 FOR SHARE)
		UPDATE cdc_relay.progress p SET ceiling = pg_current_wal_insert_lsn(), reported = $3, good = greatest(p.good, $5), at = now()
		FROM fence WHERE p.slot = $1
			AND EXISTS (SELECT FROM pg_replication_slots r WHERE r.slot_name = $1 AND r.active_pid = $4)
		RETURNING p.ceiling`, c.Slot, t.epoch, pglogrepl.LSN(t.reported.Load()), int32(pid), good).Scan(&ceiling)
	if isNoRows(err) {
		return whyNotRaised(ctx, pool, c, t)
	}
	if err != nil {
		return fmt.Errorf("raise ceiling: %w", err)
	}
	t.ceiling.Store(max(t.ceiling.Load(), uint64(ceiling)))
	t.proven.Store(settled)
	return nil
}

var errNotHolder = errors.New("this session does not hold the slot any more")

func whyNotRaised(ctx context.Context, pool *pgxpool.Pool, c *Config, t *term) error {
	rec, err := readRecord(ctx, pool, c.Slot)
	if err != nil {
		return err
	}
	if rec == nil || rec.Epoch != t.epoch {
		return fenced(c, t.epoch)
	}
	return errNotHolder
}

// lowerCeiling is the last statement of a clean stop: from now on a slot beyond at is not the one we left. The final
// report was acknowledged before, and nothing is reported after.
func lowerCeiling(ctx context.Context, pool *pgxpool.Pool, c *Config, t *term, pid uint32, good pglogrepl.LSN) error {
	at := pglogrepl.LSN(t.reported.Load())
	_, err := pool.Exec(ctx, `WITH fence AS (SELECT FROM cdc_relay.slots WHERE slot = $1 AND epoch = $2 FOR SHARE)
		UPDATE cdc_relay.progress p SET ceiling = $3, reported = $3, good = greatest(p.good, $5), at = now() FROM fence WHERE p.slot = $1
			AND EXISTS (SELECT FROM pg_replication_slots r WHERE r.slot_name = $1 AND r.active_pid = $4)`,
		c.Slot, t.epoch, at, int32(pid), good)
	if err != nil {
		return fmt.Errorf("lower ceiling: %w", err)
	}
	return nil
}
