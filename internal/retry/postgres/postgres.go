// Package postgres keeps the retry table and the dead letters in schema cdc_relay of the source
// database. Each method of the Store is one statement; each file has one or two of them.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// Store is the store in the tables of schema cdc_relay. It may be used by several goroutines.
type Store struct {
	pool *pgxpool.Pool
	pid  func(custom map[string]any) uint32
	cfg  store.Config

	limits limits
	shapes shapes

	mu               sync.Mutex
	doubtfulSessions map[uint32]bool // server processes of statements whose outcome is unknown
	lostDefer        *lostRow        // the large row of a Defer whose outcome is unknown
	unansweredWrites map[string]bool // what statements do whose last try was not answered
	failures         map[string]failure
	slotSeen         slotSeen // what ExpireDeadLetters saw of the slot
}

var _ store.Store = (*Store)(nil)

// New makes a store on the pool, whose sessions must commit durably and read what is committed. pid
// returns the process id of a connection's backend by the connection's CustomData: a proxy may have
// told the driver another one.
func New(pool *pgxpool.Pool, pid func(custom map[string]any) uint32, c store.Config) *Store {
	return &Store{pool: pool, pid: pid, cfg: c, limits: standardLimits, doubtfulSessions: map[uint32]bool{}, unansweredWrites: map[string]bool{}, failures: map[string]failure{}}
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
// and filter these. So only oursSQL lets the planner use an index. byNumberSQL hides both
// conditions from the planner, for a row that is found by its number. inSlotSQL hides the system,
// for a row that is found by ordering group or destination: so the planner does not choose the
// primary key.
func oursSQL(alias string) string { return alias + ".slot = $1 AND " + alias + ".system_id = $3" }

func inSlotSQL(alias string) string {
	return alias + ".slot = $1 AND " + alias + ".system_id IS NOT DISTINCT FROM $3"
}

// byNumberSQL is for a row that is found by its number. No index has a condition of this form, and
// without statistics the planner takes it for one that half of the rows meet. With an equality it
// would think that one row of a table is left that was just filled, and compare each row of the
// table with each of the statement.
func byNumberSQL(alias string) string {
	return "coalesce(" + alias + ".slot = $1, false) AND coalesce(" + alias + ".system_id = $3, false)"
}

// storable makes a string what a text column of the database can hold.
type storable func(string) string

// errorText returns the part of a rejection's text that is kept. An index on the column limits its
// length.
func (as storable) errorText(words string) string {
	return store.BoundedText(as(store.NormalText(words)), store.TextSize)
}

// fullText returns the text as people read it; nil: it has nothing that errorText leaves out.
func (as storable) fullText(words string) *string {
	full := as(store.BoundedText(words, store.FullTextSize))
	if full == as.errorText(words) {
		return nil
	}
	return &full
}

// runRead runs a statement that changes no row.
func (p *Store) runRead(ctx context.Context, what, sql string, args []any, each func(pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.limits.clientTimeout(0))
	defer cancel()
	conn, err := p.pool.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		err = dlq.Run(ctx, conn, p.cfg.Slot, p.cfg.Epoch, sql, args, each)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, redacted{err})
	}
	return nil
}

// runWrite runs a statement that writes. Its error is ErrFenced, a *Refused, or of unknown outcome.
func (p *Store) runWrite(ctx context.Context, what, sql string, args func(storable) []any, each func(pgx.Rows) error) error {
	return p.runSizedWrite(ctx, what, 0, sql, args, each)
}

// runSizedWrite is runWrite for rows of size bytes in all.
func (p *Store) runSizedWrite(ctx context.Context, what string, size int64, sql string, args func(storable) []any, each func(pgx.Rows) error) error {
	if err := p.recentFailure(what, size); err != nil {
		return p.tooLargeError(what, err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.limits.clientTimeout(size))
	defer cancel()
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer conn.Release()
	if err := p.endDoubt(ctx, conn); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	done, err := p.extendTimeout(ctx, conn, size)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer done()
	pg := conn.Conn().PgConn()
	err = dlq.Run(ctx, conn, p.cfg.Slot, p.cfg.Epoch, sql, args(storableBy(pg)), each)
	if err == nil {
		p.noteAnswered(what)
		p.noteSuccess(what, size)
	}
	if err == nil || isFenced(err) {
		return err
	}
	err = fmt.Errorf("%s: %w", what, redacted{err})
	switch {
	case isRefusal(err):
		p.noteAnswered(what)
		return &store.Refused{Err: err}
	case p.limits.isLarge(size) && (isRolledBack(err) || ctx.Err() == nil && pgconn.SafeToRetry(err)):
		return p.tooLargeError(what, p.noteFailure(what, size, time.Since(began), err))
	case !isRolledBack(err) && !pgconn.SafeToRetry(err):
		p.mu.Lock()
		p.doubtfulSessions[p.pid(pg.CustomData())], p.unansweredWrites[what] = true, true
		p.mu.Unlock()
		return inDoubt{err}
	}
	return err
}

// storableBy is what a text column of the database of pg can hold.
func storableBy(pg *pgconn.PgConn) storable {
	if e := pg.ParameterStatus("server_encoding"); e != "UTF8" {
		return asciiText
	}
	return func(s string) string { return s }
}

// inDoubt is the error of a statement that may still be carried out.
type inDoubt struct{ error }

// Unwrap is the error itself.
func (e inDoubt) Unwrap() error { return e.error }

// endDoubt ends the sessions of statements that were not answered, and waits until they are gone.
// Such a statement may still be on its way to the server, or wait there. It must not be carried out
// late: after its repetition, and after its rows were delivered and deleted, it would write these
// rows once more.
func (p *Store) endDoubt(ctx context.Context, conn *pgxpool.Conn) error {
	p.mu.Lock()
	pids := make([]int32, 0, len(p.doubtfulSessions))
	for pid := range p.doubtfulSessions {
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
		delete(p.doubtfulSessions, uint32(pid))
	}
	return nil
}

// LeaseNumbers implements Store. It writes: a block that was leased is never leased again, not even
// after a crash of the server. nextval logs one block in 32, and one that it does not log would
// return before another relay's record of the sequence is flushed. The lock makes it wait for that.
func (p *Store) LeaseNumbers(ctx context.Context) (int64, error) {
	var first int64
	err := p.runRead(ctx, "lease row numbers", writeFence+` SELECT nextval('cdc_relay.row_number') FROM fence`, nil,
		func(rows pgx.Rows) error { return rows.Scan(&first) })
	return first, err
}

// asciiText replaces the characters of s that the database's encoding may lack.
func asciiText(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), `\\`, `\`)
}

// limits bound the time of statements. A statement of large rows takes time by their size, most of
// it to compress and write them: 200 MB take 9 s on a fast machine. So it gets more time. Should
// that not do either, then waiting does not help, and all other rows wait meanwhile. So the row is
// isolated, as one is that the database refuses: the statement ends as a *Refused.
type limits struct {
	largeFrom int64         // bytes from which on a statement gets time by its size
	timeout   time.Duration // of every statement, on the server; the sessions' statement_timeout
	rate      int64         // bytes for which it gets another second
	margin    time.Duration // by which our side waits longer for the answer
	// size from which on an empty table is truncated
	reclaimFrom int64
}

// standardLimits are the limits but for tests. The largest row that PostgreSQL can send or take has
// 1 GiB: its statement ends within four minutes, before the goroutine that waits for it counts as
// stuck.
var standardLimits = limits{largeFrom: 4 << 20, timeout: 15 * time.Second, rate: 5 << 20, margin: 5 * time.Second, reclaimFrom: reclaimFrom}

func (l *limits) isLarge(size int64) bool { return size > l.largeFrom }

// serverTimeout is the statement_timeout of a statement with size bytes of parameters.
func (l *limits) serverTimeout(size int64) time.Duration {
	if !l.isLarge(size) {
		return l.timeout
	}
	return l.timeout + time.Duration(float64(size)/float64(l.rate)*float64(time.Second))
}

// clientTimeout bounds on our side what the server bounds with statement_timeout: a server that no
// longer answers bounds nothing.
func (l *limits) clientTimeout(size int64) time.Duration { return l.serverTimeout(size) + l.margin }

// extendTimeout sets the statement_timeout of a statement of large rows. done ends the session
// after it: so nothing has to be set back, and the memory that the rows took in the server is free
// again.
func (p *Store) extendTimeout(ctx context.Context, conn *pgxpool.Conn, size int64) (done func(), err error) {
	if !p.limits.isLarge(size) {
		return func() {}, nil
	}
	sql := "SET statement_timeout = " + strconv.FormatInt(p.limits.serverTimeout(size).Milliseconds(), 10)
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

// noteFailure notes that a statement of large rows failed, and returns its error for people.
func (p *Store) noteFailure(what string, size int64, took time.Duration, err error) error {
	err = fmt.Errorf("%w (%d MiB; rows of this size are tried less often)", err, size>>20)
	p.mu.Lock()
	defer p.mu.Unlock()
	times := min(p.failures[what].times+1, maxPauseTimes)
	p.failures[what] = failure{size, times, time.Now().Add(time.Duration(times) * took), err}
	return err
}

// maxPauseTimes is how many times as long as the statement took the pause after it is at most.
const maxPauseTimes = 9

// noteSuccess forgets the failures of statements that were no larger.
func (p *Store) noteSuccess(what string, size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, failed := p.failures[what]; failed && size >= last.size {
		delete(p.failures, what)
	}
}

// recentFailure returns the error of a failure that is not long ago, of a statement of as many
// bytes or fewer. So failing statements take half of the time at first and a tenth of it in the
// end, however many rows are that large, and leave the rest to the other rows.
func (p *Store) recentFailure(what string, size int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.failures[what]; p.limits.isLarge(size) && size >= last.size && time.Now().Before(last.until) {
		return last.err
	}
	return nil
}

// tooLargeError is the error of a try that did nothing because rows of its size take too long. That
// says nothing about an earlier try that was not answered.
func (p *Store) tooLargeError(what string, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unansweredWrites[what] {
		return err
	}
	return &store.Refused{Err: err}
}

// noteAnswered forgets that a statement was not.
func (p *Store) noteAnswered(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unansweredWrites, what)
}

// sizeOf is the size of the rows that a statement writes, by which it gets its time.
func sizeOf(rows []*store.Row) (size int64) {
	for _, row := range rows {
		size += max(row.Bytes, int64(row.Event.Size()))
	}
	return size
}

// redacted is a server error whose text leaves out the values of rows, for the log and the status.
// (The error's DETAIL, which shows whole rows, is never part of the text.)
type redacted struct{ error }

// Unwrap is the error itself.
func (e redacted) Unwrap() error { return e.error }

func (e redacted) Error() string {
	text := e.error.Error()
	var server *pgconn.PgError
	if errors.As(e.error, &server) {
		text = strings.ReplaceAll(text, server.Error(), serverText(server))
	}
	return text
}

// valueFreeStates are the SQLSTATEs, by their beginnings, for which the server's own messages name
// objects and no values: an operator needs them to see what to fix. Messages of class 22 are shown
// without what they quote (withoutQuoted). The messages of all other SQLSTATEs are not shown: among
// them are those that users' code chooses (P0001, 45000) and internal errors.
var valueFreeStates = []string{
	"08", "0A", "21", "23", "25", "26", "28", "3D", "3F", "40", "42501", "42703", "42704", "42804", "42883", "42P01", "42P05", "42P10",
	"44", "53", "54", "55", "57", "58", "XX001", "XX002",
}

// userCodeFile matches the server's source files in which users' functions raise errors, with any
// SQLSTATE and any text.
var userCodeFile = lazy.Regexp(`^pl(_|py|perl|tcl|v8)`)

// raisingFunction matches, in the context of an error, the function that raised it.
var raisingFunction = lazy.Regexp(`^PL/\w+ function "?([\w.]+)`)

// serverText is the text of the server's error without values.
func serverText(e *pgconn.PgError) string {
	message := "…"
	switch begins := func(code string) bool { return strings.HasPrefix(e.Code, code) }; {
	case userCodeFile().MatchString(e.File):
	case begins("22"):
		message = cmp.Or(withoutQuoted(e.Message), message)
	case slices.ContainsFunc(valueFreeStates, begins):
		message = e.Message
	}
	said := fmt.Sprintf("%s: %s (SQLSTATE %s)", e.Severity, message, e.Code)
	if message != "…" {
		return said
	}
	about := ""
	if found := raisingFunction().FindStringSubmatch(e.Where); found != nil {
		about += ", function " + found[1]
	}
	for _, name := range [][2]string{{"schema", e.SchemaName}, {"table", e.TableName}, {"column", e.ColumnName}, {"constraint", e.ConstraintName}} {
		if name[1] != "" {
			about += fmt.Sprintf(", %s %q", name[0], name[1])
		}
	}
	return said + about + "; the server's log has its text"
}

// quotedValue matches what is between the first quote and the last: the server does not escape
// quotes in values.
var quotedValue = lazy.Regexp(`(?s)".*"|0x[0-9a-f]{2}( 0x[0-9a-f]{2})*`)

// withoutQuoted is the message of a data exception without the quoted values; "" when they cannot
// be found, because other languages have other quotes.
func withoutQuoted(message string) string {
	rest := quotedValue().ReplaceAllString(message, "")
	if strings.ContainsFunc(rest, func(c rune) bool { return c == '"' || c > '~' }) {
		return ""
	}
	return quotedValue().ReplaceAllString(message, "…")
}

// refusingClasses are the classes of SQLSTATE that blame the statement's data, so that the same
// statement would fail again: data, integrity, program limit, internal error. A failure that an
// operator fixes or that passes by itself (a missing privilege, locks, timeouts, a full disk, a
// server that stops) is not among them: the same statement is simply repeated.
var refusingClasses = []string{"22", "23", "54", "XX"}

func isFenced(err error) bool { return errors.Is(err, store.ErrFenced) }

// isRefusal reports whether the server refused the statement for its data; it then did nothing.
func isRefusal(err error) bool {
	var e *pgconn.PgError
	if !isRolledBack(err) || !errors.As(err, &e) {
		return false
	}
	for _, class := range refusingClasses {
		if strings.HasPrefix(e.Code, class) {
			return true
		}
	}
	return false
}

// refusedIfDamaged returns err. It wraps err in a *Refused when the server could not read a row of
// the statement, because the row is damaged.
func refusedIfDamaged(err error) error {
	if isRefusal(err) {
		return &store.Refused{Err: err}
	}
	return err
}

// isRolledBack reports whether the statement was certainly rolled back. An ERROR ends its
// transaction; FATAL and PANIC end the session, perhaps after the commit.
func isRolledBack(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.SeverityUnlocalized == "ERROR"
}

// withRow returns err with the row at fault, which is known when there is only one row.
func withRow(err error, rows ...*store.Row) error {
	var refused *store.Refused
	if errors.As(err, &refused) && len(rows) == 1 {
		refused.Row = rows[0]
	}
	return err
}
