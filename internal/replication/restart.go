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
// Certain is what the database can prove. Nothing is reported above the flush limit (the flush
// limit), and a raise of it is a commit. A database that still has our limit therefore has all WAL
// before that commit, as this process read it: the transactions, and the rows of the retry table by
// which some of their events were settled. What was settled when the raise was sent is not read
// again. (Not what was settled since: its row of the retry table may be gone.) A database with a
// lower limit, a lower epoch, or less WAL than was received has lost some of what was sent, and the
// relay stops to say so.

package replication

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

// Meet asks whether the server is the one that was left, before anything else is done with it. If
// it is not, the line ends before the pool may work on it. The first server is met by prepare.
func (s *Stream) Meet(ctx context.Context, t **session.Term) error {
	at := s.cfg.Primary.Met.Load()
	if at == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	conn, err := source.ConnectStream(ctx, s.cfg)
	if err != nil {
		return err
	}
	defer source.CloseStream(conn)
	now := source.ServerOf(conn)
	if err := s.cfg.Elsewhere(*at, now); err != nil {
		return err
	}
	if short := s.cfg.LowerWAL(now); short != nil {
		return s.cfg.RolledBack(short.Why, s.limitOn(ctx, conn), max(short.To, s.durable.flushLimit))
	}
	if *t != nil && *at != now.Server {
		s.cfg.Log.Warn("the server was restarted: what is remembered of the stream is discarded and read again",
			zap.String("slot", s.cfg.Slot), zap.Int64("epoch", (*t).Epoch))
		(*t).End()
		*t = nil
	}
	s.cfg.Primary.Meet(now.Server)
	return nil
}

// limitOn is the flush limit that a server has, which is not our pool's yet; 0 when it cannot be
// read.
func (s *Stream) limitOn(ctx context.Context, conn *pgconn.PgConn) pglogrepl.LSN {
	text, err := source.AskText(ctx, conn, "SELECT max_flush_lsn FROM cdc_relay.progress WHERE slot = "+source.QuoteText(s.cfg.Slot))
	if err != nil {
		return 0
	}
	limit, err := pglogrepl.ParseLSN(text)
	if err != nil {
		return 0
	}
	return limit
}

// keep remembers at the end of a session what the server has for certain.
func (s *Stream) keep(t *session.Term, received uint64) {
	s.durable = durable{epoch: t.Epoch, raised: t.Raised, flushLimit: pglogrepl.LSN(t.FlushLimit.Load()), settled: pglogrepl.LSN(t.Proven.Load())}
	s.cfg.Primary.Wal.Store(max(s.cfg.Primary.Wal.Load(), received, t.Reported.Load()))
}

// refuseLowerRecord stops when the database has less than this process had made durable in it. The
// limit is lowered only by a clean stop, the last thing that a process does under its epoch.
//
// The slot's own position is not compared with what was reported: a report may be lost on its way,
// and a server that crashes does not have the last ones. What it would show, these numbers and the
// WAL show.
func (s *Stream) refuseLowerRecord(rec *slot.Record) error {
	had := s.durable
	until := max(had.flushLimit, pglogrepl.LSN(s.cfg.Primary.Wal.Load()))
	switch {
	case had.epoch == 0: // it has not led
	case rec.Epoch == had.epoch && rec.Raised != had.raised:
		return s.cfg.RolledBack(fmt.Sprintf("another relay has raised the epoch to %d, to which this one had raised it", rec.Epoch), rec.FlushLimit, max(until, rec.FlushLimit))
	case rec.Epoch < had.epoch:
		return s.cfg.RolledBack(fmt.Sprintf("cdc_relay.slots has epoch %d, and this relay had raised it to %d", rec.Epoch, had.epoch), rec.FlushLimit, until)
	case rec.Epoch == had.epoch && rec.FlushLimit < had.flushLimit:
		return s.cfg.RolledBack(fmt.Sprintf("cdc_relay.progress has flush limit %s, and this relay had raised it to %s", rec.FlushLimit, had.flushLimit), rec.FlushLimit, until)
	}
	return nil
}
