// Checks slot, publication and tables while the stream runs.

package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/standbys"
)

const (
	monitorFirst = time.Second // after the first report, when sync_state is known
	// how long rows of a table that left the publication can go unseen before we stop
	monitorEvery = 5 * time.Second
)

// monitor checks at intervals the state of the slot, and whether the publication still sends what
// we need. A check that cannot be made is retried, with one log line per reason; a check that fails
// ends the relay, and names the gap since the last good check.
func (se *Session) monitor(ctx context.Context) error {
	next, said, missed := monitorFirst, "", 0
	for source.Sleep(ctx, next) {
		next = monitorEvery
		source.AtWork(se.Cfg.Hooks.Monitor, true)
		err := se.check(ctx)
		source.AtWork(se.Cfg.Hooks.Monitor, false)
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

// check checks everything that may change under a running relay.
func (se *Session) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	view, err := slot.Read(ctx, se.Pool, se.Cfg.Slot)
	if err != nil || view == nil {
		return err
	}
	se.Status.Slot(view)
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
	if err := se.disarm(ctx, rec); err != nil {
		return err
	}
	sent, err := slot.CheckPublication(ctx, se.Pool, se.Cfg, rec)
	if err != nil {
		return err
	}
	if rec != nil { // else it is being torn down
		// An operator may have written meanwhile: the next check compares with that.
		if err := slot.Remember(ctx, se.Pool, se.Cfg, se.t.Epoch, rec, sent, 0); err != nil && !errors.Is(err, slot.ErrRememberedChanged) {
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

// checkStandbys records which standbys have all that was read, and says which one delivery waits
// for.
func (se *Session) checkStandbys(ctx context.Context, rec *slot.Record) error {
	received, busy := pglogrepl.LSN(se.Received.Load()), se.frames.Load()%2 == 1 // before the view
	view, err := standbys.Read(ctx, se.Pool)
	if err != nil {
		return err
	}
	if rec != nil && rec.Epoch == se.t.Epoch {
		// what sessions and leaders before have read counts as well: a standby that was named
		// later may lack it
		read := max(received, se.Cfg.Primary.Received(), se.t.inherited)
		if err := view.Record(ctx, se.Pool, se.Cfg, se.t.Epoch, rec, read); err != nil {
			return err
		}
	}
	behind := se.wait.For(view, received, busy)
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

// disarm resets state adopt that an operator set while the slot was in use, when there was nothing
// to accept. Otherwise it could stay for weeks and accept in advance whatever happens to the slot.
func (se *Session) disarm(ctx context.Context, rec *slot.Record) error {
	if rec == nil || rec.State != slot.StateAdopt || rec.Epoch != se.t.Epoch {
		return nil
	}
	_, err := se.Pool.Exec(ctx, `UPDATE cdc_relay.slots SET state = 'ready' WHERE slot = $1 AND epoch = $2 AND state = 'adopt'`, se.Cfg.Slot, se.t.Epoch)
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	rec.State = slot.StateReady
	se.Cfg.Log.Warn("reset the slot's state from adopt to ready: this relay leads, so there is nothing to accept; set adopt only after the relay has stopped and asks for it",
		zap.String("slot", se.Cfg.Slot))
	return nil
}

// warnOfOthers logs in advance, once each, the tables and prefixes that the relay will stop at, so
// that there is time to configure them.
func (se *Session) warnOfOthers(ctx context.Context, rec *slot.Record, sent publication.State) error {
	_, stops, err := sent.ReadOthers(ctx, se.Pool, se.Cfg)
	if err != nil {
		return err
	}
	for _, stop := range stops {
		if !se.WarnedOf[stop.What] {
			se.WarnedOf[stop.What] = true
			if named := (*event.Stop)(nil); errors.As(slot.FoundRows(se.Cfg, rec).Name(stop, 0), &named) {
				stop = named
			}
			se.Cfg.Log.Warn("the relay will stop at the next row that is not configured", zap.String("reason", stop.What), zap.String("fix", stop.Fix))
		}
	}
	return nil
}
