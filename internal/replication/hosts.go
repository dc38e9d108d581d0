package replication

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// This file chooses among the servers that source.url leads to: by several hosts in it, by several addresses of a name, or
// by one address that moves. Only a primary is of use, and the pool must work on the one that the stream reads.

// errStandby is the answer of a server that can only be read.
var errStandby = errors.New("this server is a standby: it can only be read")

// server is who answers at the other end: a cluster, on a timeline, in one life of its postmaster. Empty fields are not known.
type server struct {
	SystemID string
	Timeline int32
	Started  string // pg_postmaster_start_time, to the microsecond
}

// sighting is a server, and where its WAL ended when it was asked.
type sighting struct {
	server
	WAL pglogrepl.LSN
}

// home is the server that the stream reads, as it was met last. nil is for commands: they have no stream.
type home struct {
	met   atomic.Pointer[server]
	moved func() // called when it is another server than before, also the first time
	// wal is the highest position of which this process knows that it was durable there: received or reported.
	wal atomic.Uint64
}

// meet sets what the pool's new connections are compared with. Those that it has may lead elsewhere: the stream's first choice may have
// been away while they were made.
func (h *home) meet(id server) {
	if h == nil {
		return
	}
	if old := h.met.Swap(&id); h.moved != nil && (old == nil || *old != id) {
		h.moved()
	}
}

// still is an error when a connection leads to another server, or another life of it, than the one that was met.
func (h *home) still(id server) error {
	if at := h.met.Load(); at == nil || *at != id {
		return errRestarted
	}
	return nil
}

// leave lets the pool work on whatever server there is: no stream reads one any more.
func (h *home) leave() { h.met.Store(nil) }

var errRestarted = errors.New("the server was restarted: the relay checks it over the replication connection first")

// onlyPrimary has every attempt to connect go on to the next host when this one is a standby, whatever target_session_attrs
// asks for besides. One that is not preferred is asked all the same: it is taken when there is no better one.
func onlyPrimary(cfg *pgconn.Config, accept func(sighting) error) {
	asked := cfg.ValidateConnect
	cfg.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		var rank error
		if asked != nil {
			rank = asked(ctx, conn)
		}
		if other := (*pgconn.NotPreferredError)(nil); rank != nil && !errors.As(rank, &other) {
			return rank
		}
		id, err := whichServer(ctx, conn)
		if err == nil && accept != nil {
			err = accept(id)
		}
		if err != nil {
			return err
		}
		return rank
	}
}

// serverOf is the server that a connection of connectStream was made to, by the same answer as the pool's are compared by.
func serverOf(conn *pgconn.PgConn) sighting {
	id, _ := conn.CustomData()[serverKey].(sighting)
	return id
}

// serverKey is where a connection keeps it.
const serverKey = "server"

// whichServer is the server at the other end, or errStandby. It is asked in the simple protocol, which a walsender
// understands too. The name of the WAL file that is written now begins with the timeline; pg_control_checkpoint would tell
// the old one for a while after a promotion. A service that keeps these functions to itself says no more than whether it is
// a standby, and since when it runs.
func whichServer(ctx context.Context, conn *pgconn.PgConn) (sighting, error) {
	const question = `SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN '' ELSE %s || ' ' ||
		(extract(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint || ' ' || pg_catalog.pg_current_wal_lsn() END`
	answer, err := askText(ctx, conn, fmt.Sprintf(question, `(SELECT system_identifier::text FROM pg_catalog.pg_control_system()) || ' ' ||
		pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn())`))
	if pgCode(err) != "" {
		answer, err = askText(ctx, conn, fmt.Sprintf(question, `' '`))
	}
	switch {
	case err != nil:
		return sighting{}, fmt.Errorf("ask whether this is a primary: %w", err)
	case answer == "":
		return sighting{}, errStandby
	}
	return readSighting(answer)
}

// readSighting reads the four parts of whichServer's answer.
func readSighting(answer string) (sighting, error) {
	parts := strings.Split(answer, " ")
	if len(parts) != 4 {
		return sighting{}, fmt.Errorf("which server this is: it answers %q", answer)
	}
	var s sighting
	var err error
	s.SystemID, s.Started = parts[0], parts[2]
	if s.WAL, err = pglogrepl.ParseLSN(parts[3]); err != nil {
		return sighting{}, fmt.Errorf("read the position in %q: %w", answer, err)
	}
	if file := parts[1]; file != "" {
		timeline, err := strconv.ParseUint(file[:min(8, len(file))], 16, 31)
		if err != nil {
			return sighting{}, fmt.Errorf("read the timeline in %q: %w", file, err)
		}
		s.Timeline = int32(timeline)
	}
	return s, nil
}

// askText is the one text that a statement answers, in the simple protocol.
func askText(ctx context.Context, conn *pgconn.PgConn, sql string) (string, error) {
	res, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return "", err
	}
	if len(res) != 1 || len(res[0].Rows) != 1 || len(res[0].Rows[0]) != 1 {
		return "", errors.New("the server answered with something else than one text")
	}
	return string(res[0].Rows[0][0]), nil
}

// sameServer refuses a connection of the pool to another server than the stream's: with a primary that was cut off and the
// one that was promoted in its place both writable, rows of the one would be settled in the other. The slot is not there,
// or not where it was, so this is as final as when the stream itself comes there.
//
// It also refuses another life of the same server, until the stream has met it and the line of before has ended. Its
// storage may have been rolled back: what the line still has to write is about events that are not in that database. Such
// a row would have the position of another event, which would then count as deferred already, and never be sent.
func (c *Config) sameServer(now sighting) error {
	if c.home == nil {
		return nil
	}
	at := c.home.met.Load()
	if at == nil {
		return nil
	}
	if err := c.elsewhere(*at, now); err != nil {
		return err
	}
	if at.Started != now.Started {
		return errRestarted
	}
	if short := c.lowerWAL(now); short != nil {
		return c.rolledBack(short.why, now.WAL, short.to)
	}
	return nil
}

// elsewhere is not nil for another system, or another timeline of it, if both are known.
func (c *Config) elsewhere(at server, now sighting) error {
	switch {
	case at.SystemID == "" || now.SystemID == "":
		return nil
	case at.SystemID != now.SystemID:
		return slotMoved(c, fmt.Sprintf("slot %q is read from system %s, and source.url now leads to system %s", c.Slot, at.SystemID, now.SystemID))
	case at.Timeline != now.Timeline:
		return slotMoved(c, fmt.Sprintf("slot %q is read on timeline %d, and source.url now leads to a server on timeline %d: it was restored or promoted, rows may be missing from its WAL",
			c.Slot, at.Timeline, now.Timeline))
	}
	return nil
}

// mendStandby is what to do when there is no primary among the hosts.
func mendStandby(err error) string {
	var stop *outbox.Stop
	if errors.Is(err, errStandby) && !errors.As(err, &stop) {
		return "name the primary in source.url, or all servers of the cluster (postgres://a:5432,b:5432/shop): the one that can be written to is taken"
	}
	return ""
}
