package replication

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

const (
	standbyPoll  = 250 * time.Millisecond // how often a standby asks whether the slot is free
	seizeTimeout = time.Minute            // for the way from a free slot to the stream: a server may go silent on it
)

// seize stands by until the slot is free, starts replication, and makes sure of three things while it holds the slot:
// that the epoch is ours, that the slot is the one we know, and that the publication sends what we need. *t is the term
// of this process, if any; it survives when nobody led in between, else a new one takes its place.
func (s *Stream) seize(ctx context.Context, t **term) (*session, error) {
	if err := s.standBy(ctx, t); err != nil {
		return nil, err
	}
	patient := ctx
	ctx, cancel := context.WithTimeout(ctx, seizeTimeout)
	defer cancel()
	conn, err := connectStream(ctx, &s.cfg)
	if err != nil {
		return nil, err
	}
	var o opening
	id, err := identify(ctx, conn)
	if err == nil {
		err = s.cfg.home.still(serverOf(conn).server)
	}
	if err == nil {
		o, err = s.start(ctx, conn, id)
	}
	var slot *slotView
	if err == nil {
		slot, err = s.lead(ctx, patient, conn, t, o)
	}
	if err != nil {
		closeStream(conn)
		return nil, s.nameGap(ctx, err)
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		closeStream(conn)
		return nil, fmt.Errorf("take over the replication connection: %w", err)
	}
	return newSession(s, *t, hijacked, o, slot), nil
}

// standBy returns when nobody holds the slot. Only another cdc-relay is waited for: any other holder reads rows that we
// then never see.
func (s *Stream) standBy(ctx context.Context, t **term) error {
	foreign := 0
	for {
		slot, err := readSlot(ctx, s.pool, s.cfg.Slot)
		if err != nil {
			return err
		}
		if slot == nil || slot.ActivePID == 0 {
			return nil // a missing slot is start's to explain
		}
		if !slot.heldByRelay() && slot.Holder+slot.HolderUser != "" {
			// Seen twice: a holder that is just leaving shows no name for a moment.
			if foreign++; foreign > 1 {
				return held(&s.cfg, slot)
			}
		}
		if err := s.standBehind(ctx, slot, t); err != nil {
			return err
		}
		if !slept(ctx, standbyPoll) {
			return ctx.Err()
		}
	}
}

// standBehind tells our own lost session, whose walsender has not noticed yet, from another relay that leads: behind the
// latter what is in memory is thrown away, the other one reads it again.
func (s *Stream) standBehind(ctx context.Context, slot *slotView, t **term) error {
	if *t == nil {
		return s.standingBy(ctx, slot)
	}
	rec, err := readRecord(ctx, s.pool, s.cfg.Slot)
	if err != nil {
		return err
	}
	if rec != nil && (*t).continues(rec) {
		s.wait("the walsender of our lost session still holds the slot")
		return nil
	}
	(*t).end()
	*t = nil
	return s.standingBy(ctx, slot)
}

// holder is the relay that holds the slot, by the name that it has written down.
type holder struct {
	pid   int32 // of its walsender
	name  string
	asked time.Time
}

// namedEvery is how often a standby asks for the leader's name: a new leader holds the slot for a moment before it writes its own.
const namedEvery = time.Second

// standingBy shows who holds the slot. PostgreSQL has the same name for all relays of a slot, so the leader's own is beside it.
func (s *Stream) standingBy(ctx context.Context, slot *slotView) error {
	if h := &s.holder; h.pid != slot.ActivePID || time.Since(h.asked) >= namedEvery {
		rec, err := readRecord(ctx, s.pool, s.cfg.Slot)
		if err != nil {
			return err
		}
		*h = holder{pid: slot.ActivePID, asked: time.Now()}
		if rec != nil && rec.Leader != "" {
			h.name = rec.Leader + ", "
		}
	}
	s.status.standby(slot, fmt.Sprintf("%s (%sbackend %d)", slot.Holder, s.holder.name, slot.ActivePID))
	why := fmt.Sprintf("slot %q is held by %s (pid %d)", s.cfg.Slot, slot.Holder, slot.ActivePID)
	if s.said != why {
		s.said = why
		s.cfg.Log.Info("standing by", zap.String("why", why))
	}
	return nil
}

// opening is what was found before START_REPLICATION was sent.
type opening struct {
	was  sends // what is remembered of the publication
	sent sends // what is to be remembered of it by a leader with this configuration
	// resumed is what this process has settled, when it led last and the server proves that it is the same one; else 0.
	resumed pglogrepl.LSN
	from    pglogrepl.LSN // the position that was asked for; the slot's own may be higher
}

// start checks what can be checked before, and sends START_REPLICATION. Proto 1 and messages are always asked for, so that
// an event's index in its transaction never depends on the configuration.
func (s *Stream) start(ctx context.Context, conn *pgconn.PgConn, id identity) (o opening, _ error) {
	c := &s.cfg
	rec, slot, err := s.recordAndSlot(ctx)
	if err != nil {
		return o, err
	}
	if rec == nil { // it was there: this runs after prepare
		return o, slotLost(c, fmt.Sprintf("the row of slot %q in cdc_relay.slots is gone: somebody tore the relay down", c.Slot),
			"start the relay again: it creates a new slot, or says how to accept the one that is there")
	}
	if slot == nil || rec.State != stateReady {
		return o, errPrepareAgain // its table of cases says what to do
	}
	if err := checkIdentity(c, rec, slot, id); err != nil {
		return o, err
	}
	if err := s.refuseLowerRecord(rec); err != nil {
		return o, err
	}
	if err := refuseSyncStandby(ctx, s.pool, c); err != nil {
		return o, err
	}
	if err := checkLogged(ctx, s.pool); err != nil {
		return o, err
	}
	o.was = rec.sends()
	if o.sent, err = lookAtSends(ctx, s.pool, c, rec); err != nil {
		return o, err
	}
	s.lastGood.Store(uint64(slot.Current))
	if err := s.pool.QueryRow(ctx, `SELECT pg_size_bytes(current_setting('wal_segment_size'))`).Scan(&s.segment); err != nil {
		return o, fmt.Errorf("read wal_segment_size: %w", err)
	}
	// The server goes on from the slot's own position when that is higher, which it is soon. It is lower than what this process
	// has settled after a restart of the server, which does not save the slot at each report.
	o.resumed = s.durable.resume(rec)
	o.from = max(rec.TookUntil, o.resumed)
	err = pglogrepl.StartReplication(ctx, conn, c.Slot, o.from, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{
			"proto_version '1'",
			"publication_names " + quoteText(quoteName(c.Publication)),
			"messages 'true'",
		},
	})
	if pgCode(err) == "55006" { // object_in_use
		return o, errTaken
	}
	if err != nil {
		return o, fmt.Errorf("start replication: %w", err)
	}
	return o, nil
}

// lead runs while our walsender holds the slot. The epoch is read, or raised, after START_REPLICATION: whoever held the
// slot before has raised it by then, or never will without holding the slot again.
//
// What a new line counts may take longer than all the rest: patient is done when the relay is to stop. It returns the slot as
// it was before the first report.
func (s *Stream) lead(ctx, patient context.Context, conn *pgconn.PgConn, t **term, o opening) (*slotView, error) {
	c := &s.cfg
	rec, err := readRecord(ctx, s.pool, c.Slot)
	if err != nil {
		return nil, err
	}
	if rec == nil || rec.State != stateReady {
		return nil, errPrepareAgain
	}
	old := *t
	if old != nil && old.continues(rec) {
		slot, err := s.held(ctx, conn.PID())
		if err != nil {
			return nil, err
		}
		if err := checkPosition(c, rec, slot, pglogrepl.LSN(old.reported.Load())); err != nil {
			return nil, err
		}
		return slot, s.remember(ctx, rec, o, slot)
	}
	if old != nil {
		c.Log.Warn("another relay led in between, or the slot was adopted: what is in memory is thrown away and read again",
			zap.Int64("epoch", old.epoch), zap.Int64("now", rec.Epoch), zap.Int64("incarnation", rec.Incarnation))
		old.end()
		*t = nil
	}
	epoch, err := raiseEpoch(ctx, s.pool, c)
	if err != nil {
		return nil, err
	}
	slot, err := s.held(ctx, conn.PID())
	if err != nil {
		return nil, err
	}
	if rec, err = readRecord(ctx, s.pool, c.Slot); err != nil {
		return nil, err
	}
	if rec == nil || rec.Epoch != epoch {
		return nil, errPrepareAgain
	}
	if err := checkPosition(c, rec, slot, 0); err != nil {
		return nil, err
	}
	s.durable = durable{epoch: epoch, raised: rec.Raised, ceiling: rec.Ceiling, settled: o.resumed}
	if err := s.remember(ctx, rec, o, slot); err != nil {
		return nil, err
	}
	from := max(slot.ConfirmedFlush, o.resumed)
	done := reassure(patient, conn, c.WALSenderTimeout/3, slot.ConfirmedFlush)
	*t, err = newTerm(patient, s.pool, c, rec, from, slot.ConfirmedFlush)
	done()
	if err != nil {
		return nil, err
	}
	c.Log.Info("leading", zap.String("slot", c.Slot), zap.Int64("epoch", epoch), zap.Stringer("lsn", from))
	return slot, nil
}

// remember makes durable, before a row passes, what this session relays. It begins with what it looked at before it held
// the slot: should another leader have written since, all is looked at again.
func (s *Stream) remember(ctx context.Context, rec *record, o opening, slot *slotView) error {
	if !reflect.DeepEqual(rec.sends(), o.was) {
		return errSendsChanged
	}
	return rememberSends(ctx, s.pool, &s.cfg, rec.Epoch, rec, o.sent, max(slot.ConfirmedFlush, o.from))
}

// reassure reports the slot's own position every so often, until it is called off: a line may take longer to make than
// wal_sender_timeout, with a million chains to count. There is no reporter yet, and no reader.
func reassure(ctx context.Context, conn *pgconn.PgConn, every time.Duration, at pglogrepl.LSN) (callOff func()) {
	ctx, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	writing.Go(func() {
		for slept(ctx, every) {
			update := pglogrepl.StandbyStatusUpdate{WALWritePosition: at}
			if err := pglogrepl.SendStandbyStatusUpdate(ctx, conn, update); err != nil {
				return // the session's next step finds out
			}
		}
	})
	return func() {
		cancel()
		writing.Wait()
	}
}

// held is the slot's row when our walsender pid holds it.
func (s *Stream) held(ctx context.Context, pid uint32) (*slotView, error) {
	slot, err := readSlot(ctx, s.pool, s.cfg.Slot)
	if err != nil {
		return nil, err
	}
	if slot == nil || slot.ActivePID != int32(pid) {
		return nil, errNotHolder
	}
	return slot, nil
}

func (s *Stream) recordAndSlot(ctx context.Context) (*record, *slotView, error) {
	rec, err := readRecord(ctx, s.pool, s.cfg.Slot)
	if err != nil {
		return nil, nil, err
	}
	slot, err := readSlot(ctx, s.pool, s.cfg.Slot)
	return rec, slot, err
}
