package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

const (
	monitorFirst = time.Second     // after the first report, when sync_state is known
	monitorEvery = 5 * time.Second // how long rows of a table that left the publication can go unseen before we stop
)

// monitor asks the server now and then how the slot stands, and whether the publication still sends
// what we need. A check that cannot be made is made again, with one line per reason; one that fails
// ends the relay and names the gap since the last good one.
func (se *session) monitor(ctx context.Context) error {
	next, said, missed := monitorFirst, "", 0
	for slept(ctx, next) {
		next = monitorEvery
		tell(se.cfg.Hooks.Monitor, true)
		err := se.check(ctx)
		tell(se.cfg.Hooks.Monitor, false)
		var stop *outbox.Stop
		switch {
		case err == nil:
			said, missed = "", 0
			continue
		case errors.As(err, &stop):
			return err
		}
		signal(se.suspect)
		missed++
		why := steadyWords(err.Error())
		if why == said || missed == 1 && goingAway(err) {
			continue
		}
		said = why
		se.cfg.Log.Warn("publication and tables cannot be checked: rows that they no longer send would go unseen", zap.String("why", why))
	}
	return nil
}

// goingAway reports whether an error may be the server's end or the connection's, of which the
// session's own end says more.
func goingAway(err error) bool {
	code := pgCode(err)
	return code == "" || strings.HasPrefix(code, "57")
}

// check looks at what may change under a running relay.
func (se *session) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	slot, err := readSlot(ctx, se.pool, se.cfg.Slot)
	if err != nil || slot == nil {
		return err
	}
	se.status.slot(slot)
	if err := checkSyncState(&se.cfg, slot); err != nil {
		return err
	}
	if err := refuseSyncStandby(ctx, se.pool, &se.cfg); err != nil {
		return err
	}
	if err := checkLogged(ctx, se.pool); err != nil {
		return err
	}
	rec, err := readRecord(ctx, se.pool, se.cfg.Slot)
	if err != nil {
		return err
	}
	if err := se.disarm(ctx, rec); err != nil {
		return err
	}
	sent, err := lookAtSends(ctx, se.pool, &se.cfg, rec)
	if err != nil {
		return err
	}
	if rec != nil { // else it is being torn down
		// An operator may have written meanwhile: the next check compares with that.
		if err := rememberSends(ctx, se.pool, &se.cfg, se.t.epoch, rec, sent, 0); err != nil && !errors.Is(err, errSendsChanged) {
			return err
		}
	}
	if err := se.warnOfOthers(ctx, sent); err != nil {
		return err
	}
	se.lastGood.Store(uint64(slot.Current))
	return nil
}

// disarm takes back a word of an operator that came while the slot was in use, so that there was
// nothing to accept. It would stand for weeks, and accept beforehand whatever becomes of the slot.
func (se *session) disarm(ctx context.Context, rec *record) error {
	if rec == nil || rec.State != stateAdopt || rec.Epoch != se.t.epoch {
		return nil
	}
	_, err := se.pool.Exec(ctx, `UPDATE cdc_relay.slots SET state = 'ready' WHERE slot = $1 AND epoch = $2 AND state = 'adopt'`, se.cfg.Slot, se.t.epoch)
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	rec.State = stateReady
	se.cfg.Log.Warn("the row of the slot said adopt while this relay leads: nothing can be accepted now, and it says ready again; should this relay stop over something, accept that",
		zap.String("slot", se.cfg.Slot))
	return nil
}

// nameGap adds to a failed check of publication or tables between which positions rows may have
// been committed that were never sent: since the last check that found them in order: in this
// process, or else the last one that a relay wrote down, which it did when it had to write anyway.
func (s *Stream) nameGap(ctx context.Context, err error) error {
	var stop *outbox.Stop
	if !errors.As(err, &stop) || stop.Code != outbox.ExitOperator || stop.Reason != "publication" && stop.Reason != "table" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	slot, readErr := readSlot(ctx, s.pool, s.cfg.Slot)
	if readErr != nil || slot == nil {
		return err
	}
	from := s.good()
	if from == 0 {
		rec, err := readRecord(ctx, s.pool, s.cfg.Slot)
		if err == nil && rec != nil {
			from = rec.Good
		}
	}
	if from == 0 {
		from = slot.ConfirmedFlush
	}
	named := *stop
	named.What += fmt.Sprintf("; rows committed between %s and %s may be missing", from, slot.Current)
	return &named
}

func (s *Stream) good() pglogrepl.LSN { return pglogrepl.LSN(s.lastGood.Load()) }

// watchShutdown keeps one session of the pool waiting for nothing, so that the server's end of it
// is noticed at once: a fast shutdown waits for walsenders until they have reported its last
// record. When a new session is refused because the server is shutting down (57P03), shutdown is
// closed.
func (se *session) watchShutdown(ctx context.Context) error {
	for ctx.Err() == nil {
		se.holdSession(ctx)
		if ctx.Err() == nil && se.isShuttingDown(ctx) {
			close(se.shutdown)
			return nil
		}
		if !slept(ctx, 200*time.Millisecond) {
			return nil
		}
	}
	return nil
}

// holdSession returns when its session ended, or when another use of the pool found reason to
// suspect a shutdown.
func (se *session) holdSession(ctx context.Context) {
	conn, err := se.pool.Acquire(ctx)
	if err != nil {
		return
	}
	defer conn.Release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-se.suspect:
			cancel()
		}
	}()
	_, _ = conn.Conn().WaitForNotification(ctx) //nolint:errcheck // any end of it is the answer
}

func (se *session) isShuttingDown(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := connectStream(ctx, &se.cfg)
	if err == nil {
		closeStream(conn)
		return false
	}
	return pgCode(err) == "57P03"
}

// warnOfOthers says beforehand, once for each, what the relay will stop at: there may be time to
// configure it.
func (se *session) warnOfOthers(ctx context.Context, sent sends) error {
	b, err := sent.lookAtOthers(ctx, se.pool, &se.cfg)
	if err != nil {
		return err
	}
	for _, stop := range b.stops {
		if !se.warnedOf[stop.What] {
			se.warnedOf[stop.What] = true
			se.cfg.Log.Warn("the relay will stop at the next row that is not configured", zap.String("why", stop.What), zap.String("mend", stop.Mend))
		}
	}
	return nil
}
