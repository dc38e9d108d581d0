// The primary that the stream reads: which server it is, and in which lifetime. source.url may lead
// to several servers, and what is read from one of them must never be settled in the database of
// another. So the pool connects only to the server of the stream.

package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Server identifies a server: a cluster, on a timeline, in one lifetime of its postmaster. Empty
// fields are not known.
type Server struct {
	SystemID string
	Timeline int32
	Started  string // pg_postmaster_start_time, to the microsecond
}

// ServerPosition is a server and the end of its WAL when it was read.
type ServerPosition struct {
	Server
	WAL pglogrepl.LSN
}

// Primary is the server that the stream reads, as of the last connection. Commands have no stream,
// and a nil Primary.
type Primary struct {
	Server atomic.Pointer[Server] // nil: the pool may use any server
	// ServerChanged is called when the server or the term is another than before; it may be nil
	ServerChanged func()
	// ReceivedWAL is the highest position of which this process knows that it was durable there:
	// received or reported.
	ReceivedWAL atomic.Uint64
	epoch       atomic.Int64 // of this process's term; 0: it does not lead
	mu          sync.Mutex
	// pool is where connections of the pool led to while Server was nil; the zero Server: to
	// several servers. Guarded by mu.
	pool *Server
}

// SetServer sets the server with which the pool's new connections are compared. Existing
// connections may lead to another server, because the stream's first choice may have been down when
// they were made: then ServerChanged is called. At a start they mostly lead to the same server, and
// are kept. SetServer reports whether they were the pool's first ones, which had been compared with
// nothing, and led elsewhere: what they were asked counts for nothing then.
func (p *Primary) SetServer(now Server) (elsewhere bool) {
	if p == nil {
		return false
	}
	p.mu.Lock()
	elsewhere = p.pool != nil && *p.pool != now
	old := cmp.Or(p.Server.Swap(&now), p.pool)
	p.pool = nil
	p.mu.Unlock()
	if p.ServerChanged != nil && (old == nil || *old != now) {
		p.ServerChanged()
	}
	return elsewhere
}

// poolConnected notes where a new connection of the pool leads, and returns the server with which
// it is compared; nil means that the stream has not set a server yet.
func (p *Primary) poolConnected(now Server) *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.Server.Load()
	switch {
	case at != nil:
	case p.pool == nil:
		p.pool = &now
	case *p.pool != now:
		p.pool = &Server{}
	}
	return at
}

// CheckServer returns an error if a connection leads to another server than the one that SetServer
// was given last, or to another lifetime of it.
func (p *Primary) CheckServer(now Server) error {
	if at := p.Server.Load(); at == nil || *at != now {
		return errRestarted
	}
	return nil
}

// ForgetServer lets the pool use any server, while no stream is reading.
func (p *Primary) ForgetServer() { p.Server.Store(nil) }

// Received is the highest position of which this process knows that it was durable on the server; 0
// means that it has read nothing, or that there is no stream.
func (p *Primary) Received() pglogrepl.LSN {
	if p == nil {
		return 0
	}
	return pglogrepl.LSN(p.ReceivedWAL.Load())
}

// PromotedTo reports whether now is a later timeline of the same server: a standby that was
// promoted, or a copy that was.
func (s Server) PromotedTo(now Server) bool {
	return s.SystemID != "" && s.SystemID == now.SystemID && now.Timeline > s.Timeline
}

// errPromoted refuses connections of the pool to a promoted server until the stream has checked
// that server.
var errPromoted = errors.New("the server was promoted: the relay checks it over the replication connection first")

// errRestarted refuses connections of the pool to another lifetime of the server until the stream
// has connected to it.
var errRestarted = errors.New("the server was restarted: the relay checks it over the replication connection first")

// The choice among the servers that source.url leads to: by several hosts in it, by several
// addresses of a name, or by one address that moves. Only a primary is of use, and the pool must
// work on the one that the stream reads.

// errStandby refuses a server that can only be read.
var errStandby = errors.New("this server is a read-only standby")

// requirePrimary makes every attempt to connect go on to the next host when a host is a standby, or
// when accept refuses it. It replaces target_session_attrs. setting is a further statement, behind
// a semicolon, that is sent with the question and may be refused; "" means that there is none.
func requirePrimary(cfg *pgconn.Config, setting string, accept func(ServerPosition) error) {
	cfg.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		now, pid, err := whichServer(ctx, conn, setting)
		if err != nil {
			return err
		}
		conn.CustomData()[backendKey] = pid
		return accept(now)
	}
}

// BackendPID returns the process id of the backend at the other end of a connection of the pool or
// of ConnectStream, by the connection's CustomData. The backend was asked when the connection was
// made: after a statement without an answer nobody could ask. pgconn's own PID is what
// BackendKeyData says, and a proxy may say there what it likes, as Neon's does: compared with the
// server's views, it would be nobody, or another session (TestProxyThatHidesProcessIDs). It is good
// for a request to cancel only.
func BackendPID(custom map[string]any) uint32 {
	pid, _ := custom[backendKey].(uint32)
	return pid
}

// ConnectedServer returns the server of a connection made by ConnectStream. It was read by the same
// query with which the pool's connections are compared.
func ConnectedServer(conn *pgconn.PgConn) ServerPosition {
	id, _ := conn.CustomData()[serverKey].(ServerPosition)
	return id
}

// where a connection keeps them
const (
	serverKey  = "server"
	backendKey = "backend pid"
)

// whichServer returns the server at the other end and the process id of the backend there, or
// errStandby. It uses the simple protocol, which a walsender understands too. It takes the timeline
// from the name of the current WAL file: pg_control_checkpoint would return the old timeline for a
// while after a promotion. On a managed service that does not permit these functions, system and
// timeline are not known.
func whichServer(ctx context.Context, conn *pgconn.PgConn, setting string) (ServerPosition, uint32, error) {
	const question = `SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN '' ELSE pg_catalog.concat_ws(' ', %s,
		(extract(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint, pg_catalog.pg_current_wal_lsn(), pg_catalog.pg_backend_pid()) END`
	answer, err := QueryText(ctx, conn, fmt.Sprintf(question, `(SELECT system_identifier FROM pg_catalog.pg_control_system()),
		pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn())`)+setting)
	if SQLState(err) != "" {
		answer, err = QueryText(ctx, conn, fmt.Sprintf(question, `'', ''`)+setting)
	}
	switch {
	case err != nil:
		return ServerPosition{}, 0, fmt.Errorf("ask whether this is a primary: %w", err)
	case answer == "":
		return ServerPosition{}, 0, errStandby
	}
	parts := strings.Split(answer, " ")
	if len(parts) != 5 {
		return ServerPosition{}, 0, fmt.Errorf("identify the server: unexpected answer %q", answer)
	}
	pid, err := strconv.ParseUint(parts[4], 10, 31)
	if err != nil {
		return ServerPosition{}, 0, fmt.Errorf("read the backend's process id in %q: %w", answer, err)
	}
	s, err := parseServerPosition(answer, parts)
	return s, uint32(pid), err
}

// parseServerPosition parses the first four parts of whichServer's answer.
func parseServerPosition(answer string, parts []string) (s ServerPosition, err error) {
	s.SystemID, s.Started = parts[0], parts[2]
	if s.WAL, err = pglogrepl.ParseLSN(parts[3]); err != nil {
		return ServerPosition{}, fmt.Errorf("read the position in %q: %w", answer, err)
	}
	if file := parts[1]; file != "" {
		timeline, err := strconv.ParseUint(file[:min(8, len(file))], 16, 31)
		if err != nil {
			return ServerPosition{}, fmt.Errorf("read the timeline in %q: %w", file, err)
		}
		s.Timeline = int32(timeline)
	}
	return s, nil
}

// QueryText runs a statement that returns a single text, in the simple protocol. If more statements
// follow, it does not matter whether they are refused.
func QueryText(ctx context.Context, conn *pgconn.PgConn, sql string) (string, error) {
	res, err := conn.Exec(ctx, sql).ReadAll()
	if len(res) > 0 && res[0].Err == nil && SQLState(err) != "" {
		err = nil
	}
	switch {
	case err != nil:
		return "", err
	case len(res) == 0 || len(res[0].Rows) != 1 || len(res[0].Rows[0]) != 1:
		return "", errors.New("the server did not answer with a single text value")
	}
	return string(res[0].Rows[0][0]), nil
}

// sameServer refuses a connection of the pool to another server than the stream's. A primary that
// was cut off and the server that was promoted in its place may both be writable: rows of one would
// then be settled in the other. The slot does not exist on the other server, or has another
// position there, so the relay stops, as it does when the stream itself connects to that server.
//
// It also refuses another lifetime of the same server, until the stream has connected to it and the
// previous line has ended. Its storage may have been rolled back, and then the line may still have
// to write rows of events that are not in that database. Such a row would have the position of
// another event, which would then count as deferred already, and never be sent.
func (c *Config) sameServer(now ServerPosition) error {
	if c.Primary == nil {
		return nil
	}
	at := c.Primary.poolConnected(now.Server)
	if at == nil {
		return nil
	}
	if at.PromotedTo(now.Server) {
		return errPromoted
	}
	if err := c.CheckSameSystem(*at, now); err != nil {
		return err
	}
	if at.Started != now.Started {
		return errRestarted
	}
	if why, had := c.LowerWAL(now); why != "" {
		return c.RolledBack(why, now.WAL, had)
	}
	return nil
}

// CheckSameSystem returns an error for another system, or for another timeline of the same system,
// if both are known.
func (c *Config) CheckSameSystem(at Server, now ServerPosition) error {
	switch {
	case at.SystemID == "" || now.SystemID == "":
		return nil
	case at.SystemID != now.SystemID:
		return ServerMoved(fmt.Sprintf("slot %q is read from system %s, and source.url now leads to system %s", c.Slot, at.SystemID, now.SystemID), true)
	case at.Timeline != now.Timeline:
		return ServerMoved(fmt.Sprintf("slot %q is read on timeline %d, and source.url now leads to a server on timeline %d: it is an older primary, or was restored, rows may be missing from its WAL",
			c.Slot, at.Timeline, now.Timeline), false)
	}
	return nil
}

// LowerWAL returns why a server cannot be the one before: it has less WAL than this process has
// received or reported, which is had. why is "" if the server has enough. WAL is durable before the
// walsender sends it, so a crash of the server loses none of it.
func (c *Config) LowerWAL(now ServerPosition) (why string, had pglogrepl.LSN) {
	had = pglogrepl.LSN(c.Primary.ReceivedWAL.Load())
	if now.WAL < had {
		why = fmt.Sprintf("its WAL ends at %s, and this relay had received it up to %s", now.WAL, had)
	}
	return why, had
}

// RolledBack is the Stop that names the interval that the database has lost. Starting again is
// safe: a new process remembers nothing and reads from the slot.
func (c *Config) RolledBack(why string, from, to pglogrepl.LSN) *event.Stop {
	return &event.Stop{
		Code: event.ExitOperator, Reason: "rolled_back",
		What: fmt.Sprintf("the server went back to an earlier state while the relay ran: %s; what was committed between %s and %s may be gone from the database, though it may have been published", why, from, to),
		Fix: fmt.Sprintf("compare what consumers received with the tables for that time; then start the relay again: it reads slot %q from its own position, sends some events twice and skips none (nothing is gone if the relay was only torn down and set up again)",
			c.Slot),
	}
}

// The sessions of former leaders, which a new leader ends: a frozen one keeps its sessions, with
// whatever they read, lock or wait for, and is fenced only in the relay's own tables.
//
// Which sessions these are must be certain: relays that stand by, operators' commands and the new
// leader itself have the same application_name, role and database. So each session that a leader's
// pool makes takes a shared advisory lock that names its slot and its epoch. The lock writes
// nothing, needs no right, keeps nobody waiting, and ends with its session. A session from before
// the term takes it when it is used next, and those of the term are replaced when it ends. What
// another session has is not touched, whatever it does and whenever it began. A version that does
// not know the lock is fenced as ever, and its transactions end by their own timeout.

// leaderLock is the first key of the lock, in SQL; the second is the epoch.
const leaderLock = `hashtext('cdc-relay leader ' || %s)`

// MarkLeader makes the pool mark its sessions as those of a leader with this epoch; 0 means that
// this process does not lead.
func (p *Primary) MarkLeader(epoch int64) {
	if p == nil {
		return
	}
	if was := p.epoch.Swap(epoch); was != 0 && was != epoch && p.ServerChanged != nil {
		p.ServerChanged()
	}
}

// epochKey is where a session's CustomData has the epoch, an int64, with which the session is
// marked
const epochKey = "cdc-relay epoch" // an int64 of CustomData: what a session is marked with

// markSession marks a session of the pool as a leader's, if this process leads. The pool calls it
// for each use of a session. usable is false for a session of another term, which the pool then
// closes.
func (c *Config) markSession(ctx context.Context, conn *pgconn.PgConn) (usable bool, err error) {
	if c.Primary == nil {
		return true, nil
	}
	epoch := c.Primary.epoch.Load()
	marked, _ := conn.CustomData()[epochKey].(int64)
	if marked != 0 || epoch == 0 {
		return marked == epoch, nil
	}
	if _, err := QueryText(ctx, conn, fmt.Sprintf("SELECT pg_try_advisory_lock_shared("+leaderLock+", %d)", QuoteText(c.Slot), int32(epoch))); err != nil {
		return false, fmt.Errorf("mark the session of a leader: %w", err)
	}
	conn.CustomData()[epochKey] = epoch
	return true, nil
}

// EndFormer ends the sessions of leaders of the slot with another epoch than this one, and waits
// until they are gone. A new leader calls it. For a session that does not end, such as one whose
// backend is frozen, it waits for endPatience only: that session is fenced.
func EndFormer(ctx context.Context, pool *pgxpool.Pool, c *Config, epoch int64) error {
	marked := `l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = ` + fmt.Sprintf(leaderLock, "$1::text") + `::oid AND l.objid <> $2::int::oid
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	var some bool // mostly not: then nothing more is planned
	if err := Ask(ctx, pool, "look for sessions of former leaders", `SELECT EXISTS (SELECT FROM pg_locks l WHERE `+marked+`)`, c.Slot, int32(epoch)).Scan(&some); err != nil || !some {
		return err
	}
	began := time.Now()
	for found := 0; ; {
		var left int
		err := Ask(ctx, pool, "end sessions of former leaders", `SELECT count(pg_terminate_backend(a.pid)) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
			WHERE `+marked+` AND a.usename = current_user AND a.application_name = $3`, c.Slot, int32(epoch), c.ApplicationName()).Scan(&left)
		if err != nil {
			return err
		}
		found = max(found, left)
		if left > 0 && time.Since(began) < endPatience && Sleep(ctx, endPoll) {
			continue
		}
		if found > 0 {
			c.Log.Info("ended sessions of former leaders", zap.String("slot", c.Slot), zap.Int("sessions", found), zap.Int("left", left))
		}
		return nil
	}
}

const (
	endPatience = 5 * time.Second
	endPoll     = 20 * time.Millisecond
)
