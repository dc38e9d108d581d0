// The reporter: it alone writes to the replication connection, and it alone decides what may be
// reported as flushed. The server discards everything below that position.

package session

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

const (
	// the longest time between two reports, even if nothing moved, or the reader no longer reads
	// the server's keepalives
	reportEvery = time.Second
	// the shortest time between two writes: otherwise report and keepalive trigger each other
	reportGap = 10 * time.Millisecond
	// a write that takes longer than this ends the session
	writeBound = 5 * time.Second
)

// report is the reporter: it owns writes to the connection, and it is the one place that decides
// what may be flushed.
//
// Invariants: the flush position is a watermark of the line, at or below the durable flush limit,
// whose rows are recorded in the sent set,
// never lower than before, never zero (a client library would turn that into the write position,
// confirming what was merely received).
func (se *Session) report(ctx context.Context) error {
	r := reporter{Session: se, flush: event.Watermark{LSN: pglogrepl.LSN(se.t.Reported.Load())}, ask: time.Now()}
	tick := time.NewTicker(min(reportEvery, se.Cfg.WALSenderTimeout/4))
	defer tick.Stop()
	for {
		timer := false
		moved := se.t.Line.Moved()
		if r.candidate.LSN > r.flush.LSN {
			// a raise is under way, and nothing new can be reported until it is done; kick signals
			// its end
			moved = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			timer = true
			if se.Cfg.Hooks.Beat != nil {
				se.Cfg.Hooks.Beat()
			}
		case <-se.replyNow:
			timer = true
		case <-moved:
		case <-se.kick:
		}
		if err := r.step(ctx, timer); err != nil {
			return err
		}
	}
}

type reporter struct {
	*Session
	flush event.Watermark // the newest watermark at or below the flush limit
	// candidate is the watermark the flush limit was last raised for. Under load the current
	// watermark is always above a flush limit that has just become durable; the candidate is not.
	candidate event.Watermark
	sent      event.Watermark // what was written last
	raised    time.Time       // when the flush limit was last asked for
	written   time.Time
	ask       time.Time // when a reply was last asked for
	buf       []byte
}

// step moves the flush position as far as the flush limit allows, asks for a higher flush limit,
// and writes a report when one is due.
func (r *reporter) step(ctx context.Context, timer bool) error {
	now := r.t.Line.Watermark()
	limit, passed := r.limit()
	for _, m := range []event.Watermark{r.candidate, now} {
		if passed && m.LSN <= limit && r.t.isRecorded(m) && m.LSN >= r.flush.LSN {
			r.flush = m
		}
	}
	r.wantFlushLimit(now, limit)
	// Progress without events of ours is reported when the timer fires, because nothing waits for
	// it.
	if !timer && (r.flush == r.sent || r.flush.Own == r.sent.Own && !r.final.Load()) {
		return nil
	}
	if gap := reportGap - time.Since(r.written); gap > 0 {
		if !source.Sleep(ctx, gap) {
			return nil // the session is over
		}
	}
	return r.write()
}

// limit is how far may be reported: up to the flush limit. With a failover slot it is what was
// settled when the limit was raised, and only once that has passed the standbys.
func (se *Session) limit() (limit pglogrepl.LSN, passed bool) {
	if !se.failover {
		return pglogrepl.LSN(se.t.FlushLimit.Load()), true
	}
	proof := se.t.onStandbys.Load()
	if proof == nil {
		return 0, false
	}
	return pglogrepl.LSN(proof.settled), max(se.Received.Load(), se.onNamed.Load()) >= proof.passed
}

// wantFlushLimit asks for a higher flush limit: soon for a watermark that settled events of ours,
// rarely for any other, because a raise is itself a commit, and the next keepalive covers it. The
// watermark may already have moved above the limit when it is read. Then even an event below the
// limit cannot be reported before the next raise.
func (r *reporter) wantFlushLimit(now event.Watermark, limit pglogrepl.LSN) {
	// or one is under way, and will be above the candidate
	if now.LSN <= limit && r.t.isRecorded(now) || r.candidate.LSN > r.flush.LSN {
		return
	}
	if now.Own > r.flush.Own || r.final.Load() || r.isIdleRaiseDue(limit, now.LSN) {
		r.candidate, r.raised = now, time.Now()
		signal(r.raise)
	}
}

// isIdleRaiseDue reports whether a raise without events of ours is due: once at the beginning of a
// session, per idleRaiseBytes, and each minute in which more was written than the previous raise
// and the server itself write. Otherwise each raise would cause the next one for ever: an idle
// server would checkpoint again and again, begin files of WAL with archive_timeout, and keep them
// for every other slot.
func (r *reporter) isIdleRaiseDue(limit, now pglogrepl.LSN) bool {
	return r.raised.IsZero() || source.WALBeyond(r.Segment, limit, now) && (now-limit >= idleRaiseBytes || time.Since(r.raised) >= idleRaiseEvery)
}

const (
	idleRaiseEvery = time.Minute
	idleRaiseBytes = 16 << 20
)

// postgresEpoch is 2000-01-01 UTC in microseconds of the Unix epoch.
const postgresEpoch = 946684800 * 1_000_000

// write sends a standby status update:
// https://www.postgresql.org/docs/current/protocol-replication.html#PROTOCOL-REPLICATION-STANDBY-STATUS-UPDATE
func (r *reporter) write() error {
	flush := r.flush.LSN
	if flush == 0 || uint64(flush) > r.t.FlushLimit.Load() || uint64(flush) < r.t.Reported.Load() {
		return fmt.Errorf("report %s: outside of what may be reported (%s to %s)", flush,
			pglogrepl.LSN(r.t.Reported.Load()), pglogrepl.LSN(r.t.FlushLimit.Load()))
	}
	// the server would later skip the WAL that it writes up to that position
	if wal := max(r.wal, r.Received.Load()); uint64(flush) > wal {
		return fmt.Errorf("report %s: beyond the server's WAL, which is known up to %s", flush, pglogrepl.LSN(wal))
	}
	now := time.Now()
	written := max(pglogrepl.LSN(r.Received.Load()), flush)
	b := append(r.buf[:0], 'd', 0, 0, 0, 4+34, 'r')
	b = binary.BigEndian.AppendUint64(b, uint64(written))
	b = binary.BigEndian.AppendUint64(b, uint64(flush))
	b = binary.BigEndian.AppendUint64(b, uint64(flush)) // applied
	b = binary.BigEndian.AppendUint64(b, uint64(now.UnixMicro()-postgresEpoch))
	reply := byte(0)
	if now.Sub(r.ask) >= r.Cfg.WALSenderTimeout/3 {
		reply, r.ask = 1, now
	}
	r.buf = append(b, reply)
	// Reported rises before the bytes are written: if the write fails, the server may have received
	// them.
	r.t.Reported.Store(uint64(flush))
	if err := r.conn.SetWriteDeadline(now.Add(writeBound)); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if _, err := r.conn.Write(r.buf); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	r.sent, r.written = r.flush, now
	r.coalescer.nap.end() // every second at least: the reader sleeps no longer
	return nil
}
