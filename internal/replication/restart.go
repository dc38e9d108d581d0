// Detects a server whose storage was rolled back under a running relay: a volume or a virtual
// machine was restored to an earlier state.
//
// System and timeline stay the same, so only positions show it. New rows have positions below those
// that this process remembers: it would take them for repeats, and its reports would lie beyond the
// end of the WAL. Two rules keep that from happening.
//
// What is remembered of the stream belongs to one lifetime of the postmaster (checkServer). After a
// restart it is discarded, and what follows the last position that is certain is read again. That
// repeats some events and skips none.
//
// A position is certain if the database can prove it. Nothing is reported above the flush limit,
// and each raise of the limit is a commit. A database that still has our limit therefore has all
// WAL before that commit, as this process read it: the transactions, and the rows of the retry
// table by which some of their events were settled. What was settled when the raise was sent is not
// read again. (Not what was settled since: its row of the retry table may be gone.) A database with
// a lower limit, a lower epoch, or less WAL than was received has lost some of what was sent, and
// the relay stops to say so.

package replication

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

// checkServer checks whether the server is the same one as before, before anything else is done
// with it. If it is not, the line ends before the pool may connect to it. Prepare checks the first
// server.
func (s *Stream) checkServer(ctx context.Context) error {
	at := s.cfg.Primary.Server.Load()
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
	now := source.ConnectedServer(conn)
	promoted := at.PromotedTo(now.Server)
	if !promoted {
		if err := s.cfg.CheckSameSystem(*at, now); err != nil {
			return err
		}
	}
	if why, had := s.cfg.LowerWAL(now); why != "" {
		return s.cfg.RolledBack(why, s.flushLimitOn(ctx, conn), max(had, s.durable.flushLimit))
	}
	if promoted {
		s.leaveServer()
		s.cfg.Primary.SetServer(now.Server)
		return errPrepareAgain // which judges the promoted server
	}
	if s.term != nil && *at != now.Server {
		s.cfg.Log.Warn("server restarted: reading the slot again from its position; nothing is lost, some events may be sent twice",
			zap.String("slot", s.cfg.Slot), zap.Int64("epoch", s.term.Epoch))
		s.endTerm()
	}
	s.cfg.Primary.SetServer(now.Server)
	return nil
}

// leaveServer ends the line after a promotion. It forgets what was known of the server before, but
// not how much WAL was received: epoch and flush limit continue from what the promoted server has.
func (s *Stream) leaveServer() {
	s.endTerm()
	s.durable, s.visitor = durableState{}, visitor{}
	s.shared.SetGood(&slot.View{})
}

// flushLimitOn reads the flush limit from a server that went back, for the message alone: from
// there on rows may be missing; 0 if it cannot be read.
func (s *Stream) flushLimitOn(ctx context.Context, conn *pgconn.PgConn) pglogrepl.LSN {
	text, err := source.QueryText(ctx, conn, "SELECT max_flush_lsn FROM cdc_relay.progress WHERE slot = "+source.QuoteText(s.cfg.Slot))
	if err != nil {
		return 0
	}
	limit, err := pglogrepl.ParseLSN(text)
	if err != nil {
		return 0
	}
	return limit
}

// keepDurable notes at the end of a session what the database certainly has. received is the
// highest position that the session has received.
func (s *Stream) keepDurable(received uint64) {
	t := s.term
	s.durable = durableState{epoch: t.Epoch, raised: t.Raised, flushLimit: pglogrepl.LSN(t.FlushLimit.Load()), settled: pglogrepl.LSN(t.Proven.Load())}
	s.cfg.Primary.ReceivedWAL.Store(max(s.cfg.Primary.ReceivedWAL.Load(), received, t.Reported.Load()))
}

// checkRecord returns a Stop if the database has less than this process had made durable in it. The
// limit is lowered only by a clean stop, which is the last thing that a process does under its
// epoch.
//
// The slot's own position is not compared with what was reported: a report may be lost on its way,
// and a server that crashes does not have the last ones. The comparison would show no more than
// these numbers and the WAL do.
func (s *Stream) checkRecord(rec *slot.Record) error {
	had := s.durable
	until := max(had.flushLimit, pglogrepl.LSN(s.cfg.Primary.ReceivedWAL.Load()))
	switch {
	case had.epoch == 0: // it has not led
	case rec.Epoch == had.epoch && rec.Raised != had.raised:
		return s.cfg.RolledBack(fmt.Sprintf("another relay raised the epoch to %d, as this relay had done before", rec.Epoch), rec.FlushLimit, max(until, rec.FlushLimit))
	case rec.Epoch < had.epoch:
		return s.cfg.RolledBack(fmt.Sprintf("cdc_relay.slots has epoch %d, and this relay had raised it to %d", rec.Epoch, had.epoch), rec.FlushLimit, until)
	case rec.Epoch == had.epoch && rec.FlushLimit < had.flushLimit:
		return s.cfg.RolledBack(fmt.Sprintf("cdc_relay.progress has flush limit %s, and this relay had raised it to %s", rec.FlushLimit, had.flushLimit), rec.FlushLimit, until)
	}
	return nil
}

// durableState is what this process knows to be in the database: the epoch of its last term, its
// flush limit, and the watermark at the time when its last raise was sent.
type durableState struct {
	epoch               int64         // of our last term; 0: this process has not led
	raised              string        // Record.Raised of that epoch
	flushLimit, settled pglogrepl.LSN // Term.FlushLimit and Term.Proven
}

// resumeFrom returns the position from which this process continues if nobody led since: everything
// committed below it is settled, and the database proves that it is still the one that was read. 0:
// continue at the slot's own position. An equal epoch is not enough: on storage from before our
// term another relay may have raised it to the same number.
func (d durableState) resumeFrom(rec *slot.Record) pglogrepl.LSN {
	if rec.Epoch != d.epoch || rec.Raised != d.raised || rec.FlushLimit < d.flushLimit {
		return 0
	}
	return d.settled
}
