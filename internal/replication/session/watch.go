// Checks slot, publication and tables while the stream runs.

package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

const (
	monitorFirst = time.Second // after the first report, when sync_state is known
	// how long rows of a table that left the publication can go unseen before we stop
	monitorEvery = 5 * time.Second
)

// runMonitor checks at intervals the state of the slot, and whether the publication still sends
// what we need. A check that cannot be made is retried, with one log line per reason; a check that
// fails ends the relay, and names the gap since the last good check.
func (se *Session) runMonitor(ctx context.Context) error {
	next, said, missed := monitorFirst, "", 0
	for source.Sleep(ctx, next) {
		next = monitorEvery
		source.CallAtWork(se.Cfg.Hooks.Monitor, true)
		err := se.checkOnce(ctx)
		source.CallAtWork(se.Cfg.Hooks.Monitor, false)
		var stop *event.Stop
		switch {
		case err == nil:
			said, missed = "", 0
			continue
		case errors.As(err, &stop):
			return err
		}
		signal(se.suspect)
		missed++
		why := source.StableText(err.Error())
		if why == said || missed == 1 && source.IsGoingAway(err) {
			continue
		}
		said = why
		se.Cfg.Log.Warn("cannot check publication and tables: rows that are no longer sent would be missed", zap.String("reason", why))
	}
	return nil
}

// checkOnce checks everything that may change under a running relay.
func (se *Session) checkOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	view, err := slot.ReadView(ctx, se.Pool, se.Cfg.Slot)
	if err != nil || view == nil {
		return err
	}
	se.Status.SetSlot(view)
	if err := slot.CheckSyncState(se.Cfg, view); err != nil {
		return err
	}
	if err := slot.RefuseSyncStandby(ctx, se.Pool, se.Cfg); err != nil {
		return err
	}
	if err := schema.CheckLogged(ctx, se.Pool); err != nil {
		return err
	}
	rec, err := slot.ReadRecord(ctx, se.Pool, se.Cfg.Slot)
	if err != nil {
		return err
	}
	if err := se.resetAdopt(ctx, rec); err != nil {
		return err
	}
	sent, err := slot.CheckPublication(ctx, se.Pool, se.Cfg, rec)
	if err != nil {
		return err
	}
	if rec != nil { // else it is being torn down
		// An operator may have written meanwhile: the next check compares with that.
		if err := slot.RememberSends(ctx, se.Pool, se.Cfg, se.term.Epoch, rec, sent, 0); err != nil && !errors.Is(err, slot.ErrRememberedChanged) {
			return err
		}
	}
	if err := se.warnOfOthers(ctx, rec, sent); err != nil {
		return err
	}
	se.SetGood(view)
	if se.failover {
		return se.checkStandbys(ctx, rec)
	}
	return nil
}

// checkStandbys records which standbys have all that was read, and logs which ones delivery waits
// for.
func (se *Session) checkStandbys(ctx context.Context, rec *slot.Record) error {
	received, busy := pglogrepl.LSN(se.Received.Load()), se.frames.Load()%2 == 1 // before the view
	view, err := slot.ReadStandbys(ctx, se.Pool)
	if err != nil {
		return err
	}
	if rec != nil && rec.Epoch == se.term.Epoch {
		// what sessions and leaders before have read counts as well: a standby that was named
		// later may lack it
		read := max(received, se.Cfg.Primary.Received(), se.term.inherited)
		if err := view.RecordStandbys(ctx, se.Pool, se.Cfg, se.term.Epoch, rec, read); err != nil {
			return err
		}
	}
	behind := se.standbyWait.StandbysBehind(view, received, busy)
	if was := se.Status.WaitForStandby(behind); slices.Equal(was, behind) {
		return nil
	}
	if len(behind) > 0 {
		se.Cfg.Log.Warn("waiting for standby: nothing is delivered that a standby of synchronized_standby_slots does not have",
			zap.Strings("standbys", behind), zap.String("slot", se.Cfg.Slot), zap.String("fix", "start the standby, or take its slot out of synchronized_standby_slots (then a promotion of it is not proven)"))
	} else {
		se.Cfg.Log.Info("no standby is waited for any more", zap.String("slot", se.Cfg.Slot))
	}
	return nil
}

// resetAdopt resets state adopt that an operator set while the slot was in use, when there was
// nothing to accept. Otherwise it could stay for weeks and accept in advance whatever happens to
// the slot.
func (se *Session) resetAdopt(ctx context.Context, rec *slot.Record) error {
	if rec == nil || rec.State != slot.StateAdopt || rec.Epoch != se.term.Epoch {
		return nil
	}
	_, err := source.Execute(ctx, se.Pool, "write cdc_relay.slots", `UPDATE cdc_relay.slots SET state = 'ready' WHERE slot = $1 AND epoch = $2 AND state = 'adopt'`, se.Cfg.Slot, se.term.Epoch)
	if err != nil {
		return err
	}
	rec.State = slot.StateReady
	se.Cfg.Log.Warn("reset the slot's state from adopt to ready: this relay leads, so there is nothing to accept; set adopt only after the relay has stopped and asks for it",
		zap.String("slot", se.Cfg.Slot))
	return nil
}

// warnOfOthers logs in advance, once each, the tables and prefixes that the relay will stop at, so
// that there is time to configure them.
func (se *Session) warnOfOthers(ctx context.Context, rec *slot.Record, sent schema.Sends) error {
	_, stops, err := sent.ReadOthers(ctx, se.Pool, se.Cfg)
	if err != nil {
		return err
	}
	for _, stop := range stops {
		if !se.WarnedStops[stop.What] {
			se.WarnedStops[stop.What] = true
			if named := (*event.Stop)(nil); errors.As(slot.FoundStateOfRows(se.Cfg, rec).NameStop(stop, 0), &named) {
				stop = named
			}
			se.Cfg.Log.Warn("the relay will stop at the next row that is not configured", zap.String("reason", stop.What), zap.String("fix", stop.Fix))
		}
	}
	return nil
}

// watchSilence ends a session in which nothing came for the whole wal_sender_timeout although
// replies were asked for (reporter.writeReport): the network is dead, or the machine behind it.
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
		lasts := s.duration()
		if lasts == 0 && patience > timeout {
			patience = timeout
			se.Status.SetStreamingReason("")
		}
		rests := min(lasts, time.Since(worked))
		if rests > timeout && why != "" {
			return fmt.Errorf("the server has been silent for %s (source.wal_sender_timeout is %s), and %s", lasts.Round(time.Second), timeout, why)
		}
		if rests <= timeout/2 {
			why = ""
		} else if why = se.whyWalsenderRests(ctx, timeout/2); why == "" {
			worked = time.Now()
		}
		if lasts > patience && why == "" {
			patience *= 2
			remark := "the server's walsender is at work and has sent nothing for " + lasts.Round(time.Second).String()
			se.Status.SetStreamingReason(remark)
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

// duration is for how long nothing came; 0 while the reader is busy, waits for room in the
// in-flight budget, or has returned: that is no silence of the server.
func (s *silence) duration() time.Duration {
	frames, bytes := s.Session.frames.Load(), s.coalescer.total.Load()
	if frames != s.frames || bytes != s.bytes || frames%2 == 1 || s.since.IsZero() || s.readDone.Load() {
		s.frames, s.bytes, s.since = frames, bytes, time.Now()
		return 0
	}
	return time.Since(s.since)
}

// whyWalsenderRests asks the database what our walsender does, and returns why that does not
// explain its silence; "": it is at work, which does. A pid may be used again, so the session must
// also read our slot in our epoch.
//
// The walsender waits for somebody else than the server itself in waits of two types: Activity, in
// its main loop, and Client, for WAL, for us or for a standby. The names of these waits differ
// between versions, the types do not. In both it reads our reports. Its state says nothing: it is
// active while it streams, and disabled without track_activities.
func (se *Session) whyWalsenderRests(ctx context.Context, within time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, min(within, source.AnswerTimeout))
	defer cancel()
	var kind, event string
	err := se.Pool.QueryRow(ctx, `SELECT coalesce(a.wait_event_type, ''), coalesce(a.wait_event, '')
		FROM pg_stat_activity a JOIN pg_replication_slots s ON s.active_pid = a.pid
		WHERE s.slot_name = $1 AND a.pid = $2 AND EXISTS (SELECT FROM cdc_relay.slots WHERE slot = $1 AND epoch = $3)`,
		se.Cfg.Slot, int32(se.pid), se.term.Epoch).Scan(&kind, &event)
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

// ShutdownWatch notices that the server shuts down, from before START_REPLICATION until the session
// is over: the server waits for a walsender from the moment in which it streams, also while nobody
// reads from it yet.
type ShutdownWatch struct {
	shared   *Shared
	suspect  chan struct{} // a pool session was ended by the server: is it shutting down?
	renew    chan struct{} // the session is to be one of the term
	shutdown chan struct{} // closed when the server is shutting down
}

// NewShutdownWatch makes a watch for one session; it begins with Run.
func NewShutdownWatch(s *Shared) *ShutdownWatch {
	return &ShutdownWatch{shared: s, suspect: make(chan struct{}, 1), renew: make(chan struct{}, 1), shutdown: make(chan struct{})}
}

// Run keeps one idle session of the pool open, so that it is noticed at once when the server ends
// it: a fast shutdown waits for walsenders until they have reported its last record. When a new
// session is refused because the server is shutting down (57P03), a running session releases the
// slot, and the steps to one are abandoned.
func (w *ShutdownWatch) Run(ctx context.Context, abandon context.CancelCauseFunc) {
	for ctx.Err() == nil {
		refused := w.holdSession(ctx)
		if errors.Is(refused, errRenew) {
			continue
		}
		if ctx.Err() == nil && w.isShuttingDown(ctx, refused) {
			close(w.shutdown)
			abandon(ErrServerStopping)
			return
		}
		if !w.pauseBetween(ctx, refused) {
			return
		}
	}
}

// holdSession keeps a session of the pool open. It returns nil when that session has ended, or when
// another user of the pool suspects a shutdown; or why there was no session.
func (w *ShutdownWatch) holdSession(ctx context.Context) error {
	conn, err := w.shared.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-ctx.Done():
		case <-w.suspect:
			cancel(nil)
		case <-w.renew:
			cancel(errRenew)
		}
	}()
	_, _ = conn.Conn().WaitForNotification(ctx) //nolint:errcheck // any end of it is the answer
	if err := context.Cause(ctx); errors.Is(err, errRenew) {
		return err
	}
	return nil
}

// RenewSession replaces the session, once a term has begun: one from before is not marked as a
// leader's.
func (w *ShutdownWatch) RenewSession() { signal(w.renew) }

var errRenew = errors.New("the session is from before the term")

// isShuttingDown asks the server with a new connection, unless it has answered already, when it
// refused a session.
func (w *ShutdownWatch) isShuttingDown(ctx context.Context, refused error) bool {
	if code := source.SQLState(refused); code != "" {
		return code == shuttingDown
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := source.ConnectStream(ctx, w.shared.Cfg)
	if err == nil {
		source.CloseStream(conn)
		return false
	}
	return source.SQLState(err) == shuttingDown
}

const shuttingDown = "57P03" // cannot_connect_now

// pauseBetween waits before the next session: briefly when the last one had ended, and for seconds
// when there was none to have. A server without a free connection (53300), or one that refuses the
// login, is not asked more often. Its shutdown is noticed at once all the same: before it ends, a
// walsender asks for a report of its last record, and the reader then suspects a shutdown.
func (w *ShutdownWatch) pauseBetween(ctx context.Context, refused error) bool {
	if refused == nil {
		return source.Sleep(ctx, watchPause)
	}
	timer := time.NewTimer(cmp.Or(w.shared.Cfg.RefusedPause, refusedPause))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-w.suspect:
		return source.Sleep(ctx, watchPause)
	}
}

const (
	watchPause   = 200 * time.Millisecond
	refusedPause = 5 * time.Second
)
