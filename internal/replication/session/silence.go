// The watch for silence: a session ends when nothing comes from the server for too long, unless its
// walsender is at work.

package session

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// watchSilence ends a session in which nothing came for the whole wal_sender_timeout although
// replies were asked for (reporter.write): the network is dead, or the machine behind it.
//
// A walsender that waits, for WAL, for a standby or for us, reads our reports and answers. One that
// works may not: through a table rewrite (before PostgreSQL 16), the invalidations of 100,000
// subtransactions or a lock on the catalogue it sends nothing. It would begin the same work again
// in the next session, so ending this one would be repeated for ever. Therefore the database is
// asked over the pool before the session ends, and while our walsender is seen at work the session
// lasts. It ends when nothing came, and no work was seen either, for the whole wal_sender_timeout:
// so a network that dies under such a walsender is noticed as soon after its work as any other. The
// log tells of the silence each time that it has doubled.
//
// The question may wait for the pool or the network, so it needs a goroutine of its own: the
// reporter reports meanwhile (I6), and the monitor may wait for the lock that the walsender waits
// for. It is asked in the second half of the timeout, and ends with it: a dead network takes the
// pool's connections too, and is noticed no later than without the question.
func (se *Session) watchSilence(ctx context.Context) error {
	s, timeout := silence{Session: se}, se.Cfg.WALSenderTimeout
	patience := timeout  // silence that was told of, or need not be
	var worked time.Time // when our walsender was last seen at work
	var why string       // it was not, when it was last asked about
	for source.Sleep(ctx, min(reportEvery, timeout/4)) {
		lasts := s.lasts()
		if lasts == 0 && patience > timeout {
			patience = timeout
			se.Status.Remark("")
		}
		rests := min(lasts, time.Since(worked))
		if rests > timeout && why != "" {
			return fmt.Errorf("the server has been silent for %s (source.wal_sender_timeout is %s), and %s", lasts.Round(time.Second), timeout, why)
		}
		if rests <= timeout/2 {
			why = ""
		} else if why = se.walsenderRests(ctx, timeout/2); why == "" {
			worked = time.Now()
		}
		if lasts > patience && why == "" {
			patience *= 2
			remark := "the server's walsender is at work and has sent nothing for " + lasts.Round(time.Second).String()
			se.Status.Remark(remark)
			se.Cfg.Log.Warn(remark+": waiting for it, longer than source.wal_sender_timeout",
				zap.String("slot", se.Cfg.Slot), zap.Uint32("pid", se.pid), zap.Duration("wal_sender_timeout", timeout))
		}
	}
	return nil
}

// silence measures for how long nothing came from the server.
type silence struct {
	*Session
	frames uint64 // of the reader, when it was last seen moving
	bytes  uint64 // that had been read then: a huge row over a slow line is not silence
	since  time.Time
}

// lasts returns for how long nothing came. A reader that is busy, waits for room in the in-flight
// budget, or has read all that it will, does not count as silence of the server.
func (s *silence) lasts() time.Duration {
	frames, bytes := s.Session.frames.Load(), s.coalescer.total.Load()
	if frames != s.frames || bytes != s.bytes || frames%2 == 1 || s.since.IsZero() || s.readDone.Load() {
		s.frames, s.bytes, s.since = frames, bytes, time.Now()
		return 0
	}
	return time.Since(s.since)
}

// walsenderRests asks the database what our walsender does, and returns why that does not explain
// its silence, "" if it works. A pid may be used again, so the session must also read our slot in
// our epoch.
//
// The walsender waits for somebody else than the server itself in waits of two types: Activity, in
// its main loop, and Client, for WAL, for us or for a standby. The names of these waits differ
// between versions, the types do not. In both it reads our reports. Its state says nothing: it is
// active while it streams, and disabled without track_activities.
func (se *Session) walsenderRests(ctx context.Context, within time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, min(within, source.AnswerTimeout))
	defer cancel()
	var kind, event string
	err := se.Pool.QueryRow(ctx, `SELECT coalesce(a.wait_event_type, ''), coalesce(a.wait_event, '')
		FROM pg_stat_activity a JOIN pg_replication_slots s ON s.active_pid = a.pid
		WHERE s.slot_name = $1 AND a.pid = $2 AND EXISTS (SELECT FROM cdc_relay.slots WHERE slot = $1 AND epoch = $3)`,
		se.Cfg.Slot, int32(se.pid), se.t.Epoch).Scan(&kind, &event)
	switch {
	case source.IsNoRows(err):
		return "its walsender is gone"
	case err != nil:
		return "cannot ask about its walsender: " + err.Error()
	case kind == "Activity" || kind == "Client":
		return "its walsender waits (" + event + ")"
	}
	return ""
}
