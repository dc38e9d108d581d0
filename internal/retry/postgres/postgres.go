// Package postgres keeps the retry table and the dead letters in schema cdc_relay of the source
// database. Each method of the Store is one statement; each file has one or two of them.
package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// Store is the store in the tables of schema cdc_relay. It may be used by several goroutines.
type Store struct {
	pool *pgxpool.Pool
	pid  func(custom map[string]any) uint32
	c    store.Config

	limits limits
	shapes shapes

	mu       sync.Mutex
	doubt    map[uint32]bool // server processes of statements whose outcome is unknown
	lost     *lostRow        // the large row of a Defer whose outcome is unknown
	unknown  map[string]bool // what statements do whose last try was not answered
	failures map[string]failure
	seen     slotSeen // what Expire saw of the slot
}

var _ store.Store = (*Store)(nil)

// New makes a store on the pool, whose sessions must commit durably and read what is committed. pid
// returns the process id of a connection's backend by the connection's CustomData: a proxy may have
// told the driver another one.
func New(pool *pgxpool.Pool, pid func(custom map[string]any) uint32, c store.Config) *Store {
	return &Store{pool: pool, pid: pid, c: c, limits: standard, doubt: map[uint32]bool{}, unknown: map[string]bool{}, failures: map[string]failure{}}
}

// Every statement begins with a fence, so it takes effect for the leader of this epoch only: with
// writeFence if it writes, else with readFence. Everything that it reads or writes is joined to the
// fence, and so is its answer: no row at all means that this leader is fenced. $1 is the slot, $2
// the epoch, $3 the system.
const (
	writeFence = dlq.WriteFence
	readFence  = dlq.ReadFence
)

// The conditions that a row belongs to our slot and system. In a table that was never analysed the
// planner assumes that they match few rows. It would use an index for them, read a million rows,
// and filter these. So only ours lets the planner use an index. byNumber hides both conditions from
// the planner, for a row that is found by its number. inSlot hides the system, for a row that is
// found by ordering group or destination: so the planner does not choose the primary key.
func ours(alias string) string { return alias + ".slot = $1 AND " + alias + ".system_id = $3" }

func inSlot(alias string) string {
	return alias + ".slot = $1 AND " + alias + ".system_id IS NOT DISTINCT FROM $3"
}

// byNumber is for a row that is found by its number. No index has a condition of this form, and
// without statistics the planner takes it for one that half of the rows meet. With an equality it
// would think that one row of a table is left that was just filled, and compare each row of the
// table with each of the statement.
func byNumber(alias string) string {
	return "coalesce(" + alias + ".slot = $1, false) AND coalesce(" + alias + ".system_id = $3, false)"
}

// storable makes a string what a text column of the database can hold.
type storable func(string) string

// errorText returns the part of a rejection's text that is kept. An index on the column limits its
// length.
func (as storable) errorText(words string) string {
	return store.BoundedText(as(store.NormalText(words)), store.TextSize)
}

// read runs a statement that changes no row.
func (p *Store) read(ctx context.Context, what, sql string, args []any, each func(pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.limits.patience(0))
	defer cancel()
	conn, err := p.pool.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		err = p.run(ctx, conn, sql, args, each)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, redacted{err})
	}
	return nil
}

// change runs a statement that writes. Its error is ErrFenced, a *Refused, or of unknown outcome.
func (p *Store) change(ctx context.Context, what, sql string, args func(storable) []any, each func(pgx.Rows) error) error {
	return p.changeRows(ctx, what, 0, sql, args, each)
}

// changeRows is change for rows of so many bytes.
func (p *Store) changeRows(ctx context.Context, what string, size int64, sql string, args func(storable) []any, each func(pgx.Rows) error) error {
	if err := p.failedLately(what, size); err != nil {
		return p.tooLarge(what, err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.limits.patience(size))
	defer cancel()
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer conn.Release()
	if err := p.endDoubt(ctx, conn); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	done, err := p.giveTime(ctx, conn, size)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer done()
	pg := conn.Conn().PgConn()
	err = p.run(ctx, conn, sql, args(storableBy(pg)), each)
	if err == nil {
		p.answered(what)
		p.succeeded(what, size)
	}
	if err == nil || isFenced(err) {
		return err
	}
	err = fmt.Errorf("%s: %w", what, redacted{err})
	switch {
	case isRefusal(err):
		p.answered(what)
		return &store.Refused{Err: err}
	case p.limits.isLarge(size) && (didNothing(err) || ctx.Err() == nil && pgconn.SafeToRetry(err)):
		return p.tooLarge(what, p.failed(what, size, time.Since(began), err))
	case !didNothing(err) && !pgconn.SafeToRetry(err):
		p.mu.Lock()
		p.doubt[p.pid(pg.CustomData())], p.unknown[what] = true, true
		p.mu.Unlock()
		return inDoubt{err}
	}
	return err
}

// storableBy is what a text column of the database of pg can hold.
func storableBy(pg *pgconn.PgConn) storable {
	if e := pg.ParameterStatus("server_encoding"); e != "UTF8" && e != "SQL_ASCII" {
		return ascii
	}
	return func(s string) string { return s }
}

// inDoubt is the error of a statement that may still be carried out.
type inDoubt struct{ error }

// Unwrap is the error itself.
func (e inDoubt) Unwrap() error { return e.error }

// run runs one statement in one round trip and calls each for every row whose first column is not
// NULL.
//
// It is planned again every time (QueryExecModeCacheDescribe). The tables grow from empty to a
// million rows and shrink again in minutes, and an old plan would scan the whole table for each of
// a thousand rows.
func (p *Store) run(ctx context.Context, conn *pgxpool.Conn, sql string, args []any, each func(pgx.Rows) error) error {
	rows, err := conn.Query(ctx, sql, append([]any{pgx.QueryExecModeCacheDescribe, p.c.Slot, p.c.Epoch}, args...)...)
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
		return store.ErrFenced
	}
	return nil
}

// endDoubt ends the sessions of statements that were not answered, and waits until they are gone.
// Such a statement may still be on its way to the server, or wait there. It must not be carried out
// late: after its repetition, and after its rows were delivered and deleted, it would write these
// rows once more.
func (p *Store) endDoubt(ctx context.Context, conn *pgxpool.Conn) error {
	p.mu.Lock()
	pids := make([]int32, 0, len(p.doubt))
	for pid := range p.doubt {
		pids = append(pids, int32(pid))
	}
	p.mu.Unlock()
	if len(pids) == 0 {
		return nil
	}
	// The server may have given the process id to another session in the meantime: at worst one
	// more session of our own ends. One that ends by itself in between counts as left: it is gone
	// at the second look.
	left := 1
	for look := 0; left > 0 && look < 2; look++ {
		err := conn.QueryRow(ctx, `SELECT count(*) FROM (SELECT pg_terminate_backend(a.pid, 3000) AS ended FROM pg_stat_activity a
			WHERE a.pid = ANY ($1) AND a.pid <> pg_backend_pid() AND a.usename = current_user AND a.backend_type = 'client backend'
				AND a.application_name = current_setting('application_name')) e WHERE NOT ended`, pids).Scan(&left)
		if err != nil {
			return fmt.Errorf("end sessions of statements without an answer: %w", err)
		}
	}
	if left > 0 {
		return fmt.Errorf("%d sessions of statements without an answer do not end", left)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pid := range pids {
		delete(p.doubt, uint32(pid))
	}
	return nil
}

// Lease implements Store. It writes: a block that was leased is never leased again, not even after
// a crash of the server. nextval logs one block in 32, and one that it does not log would return
// before another relay's record of the sequence is flushed. The lock makes it wait for that.
func (p *Store) Lease(ctx context.Context) (int64, error) {
	var first int64
	err := p.read(ctx, "lease row numbers", writeFence+` SELECT nextval('cdc_relay.row_number') FROM fence`, nil,
		func(rows pgx.Rows) error { return rows.Scan(&first) })
	return first, err
}

// ascii replaces the characters of s that the database's encoding may lack.
func ascii(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), `\\`, `\`)
}
