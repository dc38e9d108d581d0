// Large rows: their statements get time by their size, and a row whose statement fails is isolated.

package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// limits bound the time of statements. A statement of large rows takes time by their size, most of
// it to compress and write them: 200 MB take 9 s on a fast machine. So it gets more time. Should
// that not do either, then waiting does not help, and all other rows wait meanwhile. So the row is
// isolated, as one is that the database refuses: the statement ends as a *Refused.
type limits struct {
	large   int64         // bytes from which on a statement gets time by its size
	timeout time.Duration // of every statement, on the server; the sessions' statement_timeout
	rate    int64         // bytes for which it gets another second
	margin  time.Duration // by which our side waits longer for the answer
	// size from which on an empty table is truncated
	reclaimFrom int64
}

// standard are the limits but for tests. The largest row that PostgreSQL can send or take has
// 1 GiB: its statement ends within four minutes, before the goroutine that waits for it counts as
// stuck.
var standard = limits{large: 4 << 20, timeout: 15 * time.Second, rate: 5 << 20, margin: 5 * time.Second, reclaimFrom: reclaimFrom}

func (l *limits) isLarge(size int64) bool { return size > l.large }

// onServer is the statement_timeout of a statement of so many bytes.
func (l *limits) onServer(size int64) time.Duration {
	if !l.isLarge(size) {
		return l.timeout
	}
	return l.timeout + time.Duration(float64(size)/float64(l.rate)*float64(time.Second))
}

// patience bounds on our side what the server bounds with statement_timeout: a server that no
// longer answers bounds nothing.
func (l *limits) patience(size int64) time.Duration { return l.onServer(size) + l.margin }

// giveTime sets the statement_timeout of a statement of large rows. done ends the session after it:
// so nothing has to be set back, and the memory that the rows took in the server is free again.
func (p *Store) giveTime(ctx context.Context, conn *pgxpool.Conn, size int64) (done func(), err error) {
	if !p.limits.isLarge(size) {
		return func() {}, nil
	}
	sql := "SET statement_timeout = " + strconv.FormatInt(p.limits.onServer(size).Milliseconds(), 10)
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return func() { _ = conn.Conn().Close(ctx) }, err
}

// failure is the last one of a statement with a large row.
type failure struct {
	size  int64
	times int // one after the other
	until time.Time
	err   error
}

// failed notes that a statement of large rows failed, and returns its error for people.
func (p *Store) failed(what string, size int64, took time.Duration, err error) error {
	err = fmt.Errorf("%w (%d MiB; rows of this size are tried less often)", err, size>>20)
	p.mu.Lock()
	defer p.mu.Unlock()
	times := min(p.failures[what].times+1, maxPauseTimes)
	p.failures[what] = failure{size, times, time.Now().Add(time.Duration(times) * took), err}
	return err
}

// maxPauseTimes is how many times as long as the statement took the pause after it is at most.
const maxPauseTimes = 9

// succeeded forgets the failures of statements that were no larger.
func (p *Store) succeeded(what string, size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, failed := p.failures[what]; failed && size >= last.size {
		delete(p.failures, what)
	}
}

// failedLately returns the error of a failure that is not long ago, of a statement of as many bytes
// or fewer. So failing statements take half of the time at first and a tenth of it in the end,
// however many rows are that large, and leave the rest to the other rows.
func (p *Store) failedLately(what string, size int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.failures[what]; p.limits.isLarge(size) && size >= last.size && time.Now().Before(last.until) {
		return last.err
	}
	return nil
}

// tooLarge is the error of a try that did nothing because rows of its size take too long. That says
// nothing about an earlier try that was not answered.
func (p *Store) tooLarge(what string, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unknown[what] {
		return err
	}
	return &store.Refused{Err: err}
}

// answered forgets that a statement was not.
func (p *Store) answered(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unknown, what)
}

// sizeOf is the size of the rows that a statement writes, by which it gets its time.
func sizeOf(rows []*store.Row) (size int64) {
	for _, row := range rows {
		size += max(row.Bytes, int64(row.Event.Size()))
	}
	return size
}
