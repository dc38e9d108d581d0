// Copy writes rows that nobody has deferred: those of a gap, which are read from the outbox.

package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

const (
	copyRows  = 250     // of one statement, at most: the reader of the rows waits meanwhile
	copyBytes = 1 << 20 // of the rows of one statement, but for one that is larger
)

// copySQL inserts rows; $1 is the slot, $2 the system.
var copySQL = func() string {
	rows := copyArrays(nil, nil)
	return `INSERT INTO cdc_relay.retry (slot, system_id, next_attempt, ` + fieldNames() + `)
		SELECT $1, $2, x.next_attempt, ` + fieldList("x", map[string]string{"commit_lsn": "x.commit_lsn::pg_lsn"}) + ` FROM ` + rows.table(3, rows.names)
}()

func copyArrays(rows []tableRow, next []*time.Time) (a arrays) {
	for _, f := range fields {
		a.add(f.name, f.typ, f.array(rows))
	}
	a.add("next_attempt", "timestamptz", next)
	return a
}

// Copy copies rows into the retry table, in the transaction that is open on conn, until next
// returns io.EOF, and returns their number. It uses conn under the lock alone, and not while it
// waits for a row. In memory are the rows of one statement. A row is stored as Defer stores one
// that was never refused. There is no fence and no look at what is there: the caller's transaction
// has both.
//
// It is no COPY: the server waits in one for its client for as long as it takes, and nothing ends
// that wait if the process is frozen (TestFrozenRecover).
func (p *Store) Copy(ctx context.Context, conn *pgx.Conn, lock sync.Locker, next func() (*store.Row, error)) (copied int64, err error) {
	as := storableBy(conn.PgConn())
	var rows []tableRow
	var due []*time.Time
	size := int64(0)
	write := func() error {
		if len(rows) == 0 {
			return nil
		}
		lock.Lock()
		defer lock.Unlock()
		_, err := conn.Exec(ctx, copySQL, append([]any{p.c.Slot, p.c.SystemID}, copyArrays(rows, due).values...)...)
		if err != nil {
			return fmt.Errorf("copy rows into the retry table: %w", redacted{err})
		}
		copied += int64(len(rows))
		rows, due, size = rows[:0], due[:0], 0
		return nil
	}
	for {
		row, err := next()
		if errors.Is(err, io.EOF) {
			return copied, write()
		}
		if err != nil {
			return copied, err
		}
		r := p.encode(row, as)
		if len(rows) == copyRows || size+r.bytes > copyBytes {
			if err := write(); err != nil {
				return copied, err
			}
		}
		if r.bytes <= copyBytes { // else it is written before next is asked again
			r.own()
		}
		rows, due, size = append(rows, r), append(due, nilIfZero(row.NextAttempt)), size+r.bytes
		if size > copyBytes {
			if err := write(); err != nil {
				return copied, err
			}
		}
	}
}

// own makes copies of the values that belong to somebody else.
func (r *tableRow) own() {
	for _, value := range []*[]byte{&r.routeName, &r.routingKey, &r.id, &r.aggregate, &r.key, &r.typ, &r.payload, &r.traceparent, &r.headers, &r.raw} {
		*value = bytes.Clone(*value)
	}
	if r.leftOut != nil {
		r.leftOut = new(*r.leftOut)
	}
	if r.resend != nil {
		r.resend = new(*r.resend)
	}
}
