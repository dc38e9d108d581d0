// A server whose storage went back under a running relay: a volume or a virtual machine was
// restored to an earlier state.
//
// System and timeline stay the same, so only positions show it. New rows have positions below those
// that this process remembers: it would take them for repeats, and its reports would lie beyond the
// end of the WAL. Two rules keep that from happening.
//
// What is remembered of the stream belongs to one life of the postmaster (meet). After a restart it
// is discarded, and what follows the last position that is certain is read again. That repeats some
// events and skips none.
//
// Certain is what the database can prove. Nothing is reported above the flush limit (the ceiling),
// and a raise of it is a commit. A database that still has our limit therefore has all WAL before
// that commit, as this process read it: the transactions, and the rows of the retry table by which
// some of their events were settled. What was settled when the raise was sent is not read again.
// (Not what was settled since: its row of the retry table may be gone.) A database with a lower
// limit, a lower epoch, or less WAL than was received has lost some of what was sent, and the relay
// stops to say so.

package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// meet asks whether the server is the one that was left, before anything else is done with it. If
// it is not, the line ends before the pool may work on it. The first server is met by prepare.
func (s *Stream) meet(ctx context.Context, t **term) error {
	at := s.cfg.home.met.Load()
	if at == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := connectStream(ctx, &s.cfg)
	if err != nil {
		return err
	}
	defer closeStream(conn)
	now := serverOf(conn)
	if err := s.cfg.elsewhere(*at, now); err != nil {
		return err
	}
	if short := s.cfg.lowerWAL(now); short != nil {
		return s.cfg.rolledBack(short.why, s.limitOn(ctx, conn), max(short.to, s.durable.ceiling))
	}
	if *t != nil && *at != now.server {
		s.cfg.Log.Warn("the server was restarted: what is remembered of the stream is discarded and read again",
			zap.String("slot", s.cfg.Slot), zap.Int64("epoch", (*t).epoch))
		(*t).end()
		*t = nil
	}
	s.cfg.home.meet(now.server)
	return nil
}

// limitOn is the flush limit that a server has, which is not our pool's yet; 0 when it cannot be
// read.
func (s *Stream) limitOn(ctx context.Context, conn *pgconn.PgConn) pglogrepl.LSN {
	text, err := askText(ctx, conn, "SELECT ceiling FROM cdc_relay.progress WHERE slot = "+quoteText(s.cfg.Slot))
	if err != nil {
		return 0
	}
	limit, err := pglogrepl.ParseLSN(text)
	if err != nil {
		return 0
	}
	return limit
}

// durable is what this process knows to be in the database: the epoch of its last term, the flush
// limit under it, and the watermark when its last raise was sent.
type durable struct {
	epoch            int64
	raised           string // record.Raised
	ceiling, settled pglogrepl.LSN
}

// keep remembers at the end of a session what the server has for certain.
func (s *Stream) keep(t *term, received uint64) {
	s.durable = durable{epoch: t.epoch, raised: t.raised, ceiling: pglogrepl.LSN(t.ceiling.Load()), settled: pglogrepl.LSN(t.proven.Load())}
	s.cfg.home.wal.Store(max(s.cfg.home.wal.Load(), received, t.reported.Load()))
}

// resume is the position from which this process goes on when nobody led since: what was committed
// below it is settled, and the database proves that it is still what was read. 0: the slot's own
// position. An equal epoch is not enough: on storage from before our term another relay may have
// raised it to the same number.
func (d durable) resume(rec *record) pglogrepl.LSN {
	if rec.Epoch != d.epoch || rec.Raised != d.raised || rec.Ceiling < d.ceiling {
		return 0
	}
	return d.settled
}

// shortfall is why a server cannot be the one that was left, and up to where it was known.
type shortfall struct {
	why string
	to  pglogrepl.LSN
}

// lowerWAL is not nil for a server that has less WAL than this process has received or reported.
// What the walsender sends is durable before, so a crash of the server takes none of it away.
func (c *Config) lowerWAL(now sighting) *shortfall {
	had := pglogrepl.LSN(c.home.wal.Load())
	if now.WAL >= had {
		return nil
	}
	return &shortfall{fmt.Sprintf("its WAL ends at %s, and this relay had received it up to %s", now.WAL, had), had}
}

// refuseLowerRecord stops when the database has less than this process had made durable in it. The
// limit is lowered only by a clean stop, the last thing that a process does under its epoch.
//
// The slot's own position is not compared with what was reported: a report may be lost on its way,
// and a server that crashes does not have the last ones. What it would show, these numbers and the
// WAL show.
func (s *Stream) refuseLowerRecord(rec *record) error {
	had := s.durable
	until := max(had.ceiling, pglogrepl.LSN(s.cfg.home.wal.Load()))
	switch {
	case had.epoch == 0: // it has not led
	case rec.Epoch == had.epoch && rec.Raised != had.raised:
		return s.cfg.rolledBack(fmt.Sprintf("another relay has raised the epoch to %d, to which this one had raised it", rec.Epoch), rec.Ceiling, max(until, rec.Ceiling))
	case rec.Epoch < had.epoch:
		return s.cfg.rolledBack(fmt.Sprintf("cdc_relay.slots has epoch %d, and this relay had raised it to %d", rec.Epoch, had.epoch), rec.Ceiling, until)
	case rec.Epoch == had.epoch && rec.Ceiling < had.ceiling:
		return s.cfg.rolledBack(fmt.Sprintf("cdc_relay.progress has ceiling %s, and this relay had raised it to %s", rec.Ceiling, had.ceiling), rec.Ceiling, until)
	}
	return nil
}

// seenAgain checks that a stream that is read again has the transaction that was read last before:
// by positions alone another one in its place would be skipped as a repeat. It is for a server that
// went back and runs on, as a virtual machine does that is resumed with its memory. The zero value
// has seen all it must.
type seenAgain struct {
	commit pglogrepl.LSN // start of its commit record; 0: seen, or none is to come again
	xid    uint32
	from   pglogrepl.LSN // where the stream that is read again begins
}

// begin is told of each transaction in the stream.
func (a *seenAgain) begin(c *Config, commit pglogrepl.LSN, xid uint32) error {
	switch {
	case a.commit == 0 || commit < a.commit:
		return nil
	case commit == a.commit && xid == a.xid:
		a.commit = 0
		return nil
	}
	return a.missing(c, commit)
}

// passes tells whether a keepalive may count: until the transaction was seen again nothing before
// it may be confirmed by one.
func (a *seenAgain) passes(c *Config, end pglogrepl.LSN) (bool, error) {
	if a.commit == 0 {
		return true, nil
	}
	if end > a.commit {
		return false, a.missing(c, end)
	}
	return false, nil
}

func (a *seenAgain) missing(c *Config, at pglogrepl.LSN) error {
	return c.rolledBack(fmt.Sprintf("transaction %d, which this relay had read at %s, is not in the WAL any more (now at %s)", a.xid, a.commit, at), a.from, max(a.commit, at))
}

// rolledBack names the interval that the database has lost. Starting again is safe: a new process
// remembers nothing and reads from the slot.
func (c *Config) rolledBack(why string, from, to pglogrepl.LSN) *outbox.Stop {
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "rolled_back",
		What: fmt.Sprintf("the server went back to an earlier state while the relay ran: %s; what was committed between %s and %s may be gone from the database, though it may have been published", why, from, to),
		Mend: fmt.Sprintf("compare what consumers received with the tables for that time; then start the relay again: it reads slot %q from its own position, sends some events twice and skips none (nothing is gone if the relay was only torn down and set up again)",
			c.Slot),
	}
}
