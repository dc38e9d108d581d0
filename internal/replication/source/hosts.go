// The choice among the servers that source.url leads to: by several hosts in it, by several
// addresses of a name, or by one address that moves. Only a primary is of use, and the pool must
// work on the one that the stream reads.

package source

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// errStandby is the answer of a server that can only be read.
var errStandby = errors.New("this server is a read-only standby")

// onlyPrimary makes every attempt to connect go on to the next host when a host is a standby, or is
// not accepted. It replaces target_session_attrs.
func onlyPrimary(cfg *pgconn.Config, accept func(ServerPosition) error) {
	cfg.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		now, pid, err := whichServer(ctx, conn)
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
// server's views, it would be nobody, or another session. It is good for a request to cancel only.
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
func whichServer(ctx context.Context, conn *pgconn.PgConn) (ServerPosition, uint32, error) {
	const question = `SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN '' ELSE %s || ' ' ||
		(extract(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint || ' ' || pg_catalog.pg_current_wal_lsn()
		|| ' ' || pg_catalog.pg_backend_pid() END`
	answer, err := QueryText(ctx, conn, fmt.Sprintf(question, `(SELECT system_identifier::text FROM pg_catalog.pg_control_system()) || ' ' ||
		pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn())`))
	if SQLState(err) != "" {
		answer, err = QueryText(ctx, conn, fmt.Sprintf(question, `' '`))
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

// QueryText runs a statement that returns a single text, in the simple protocol.
func QueryText(ctx context.Context, conn *pgconn.PgConn, sql string) (string, error) {
	res, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return "", err
	}
	if len(res) != 1 || len(res[0].Rows) != 1 || len(res[0].Rows[0]) != 1 {
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
	if at.Promoted(now.Server) {
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

// LowerWAL returns why a server cannot be the previous one if it has less WAL than this process has
// received or reported, and how much that was. WAL is durable before the walsender sends it, so a
// crash of the server loses none of it.
func (c *Config) LowerWAL(now ServerPosition) (why string, had pglogrepl.LSN) {
	had = pglogrepl.LSN(c.Primary.Wal.Load())
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
