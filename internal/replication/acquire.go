// How a relay becomes the leader: it waits for a free slot, starts replication, and checks epoch,
// slot and publication while it holds the slot, before the first row passes.

package replication

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

var (
	errTaken    = errors.New("another relay acquired the slot in the meantime")
	errPromoted = errors.New("the server was promoted: prepare again")
)

// prepared is what the steps to a session begin with: the replication connection, and what was
// found before START_REPLICATION.
type prepared struct {
	*slot.Prepared
	pace  *session.Coalescer // reads the connection
	until time.Time          // when it does not count any more
}

// preparedFor is how long the first session counts on what Prepare has found. A running session
// looks as often: a change of the publication, of the tables or of sync_state shows then.
const preparedFor = 5 * time.Second

// isFresh reports whether what Prepare has found still counts.
func (p *prepared) isFresh() bool { return p.Prepared != nil && time.Now().Before(p.until) }

// dial opens the replication connection.
func (p *prepared) dial(ctx context.Context, c *source.Config) (conn *pgconn.PgConn, err error) {
	conn, p.pace, err = session.ConnectCoalesced(ctx, c)
	return conn, err
}

// prepare calls slot.Prepare. What it leaves is for the first session: no connection is made, and
// no question asked, a second time.
func (s *Stream) prepare(ctx context.Context) (err error) {
	p := prepared{until: time.Now().Add(s.preparedFor)}
	if p.Prepared, err = slot.Prepare(ctx, s.pool, s.cfg, p.dial); err == nil {
		s.prepared = p
	}
	return err
}

// takePrepared is what Prepare has left, or a new connection.
func (s *Stream) takePrepared(ctx context.Context) (p prepared, err error) {
	if s.prepared.isFresh() {
		p, s.prepared = s.prepared, p
		return p, nil
	}
	s.dropPrepared()
	conn, err := p.dial(ctx, s.cfg)
	if err != nil {
		return p, err
	}
	p.Prepared = &slot.Prepared{Stream: conn}
	if p.ID, err = slot.Identify(ctx, conn); err != nil {
		p.Close()
	}
	return p, err
}

// dropPrepared ends the connection that Prepare has left. The next session makes its own.
func (s *Stream) dropPrepared() {
	s.prepared.Close()
	s.prepared = prepared{}
}

// acquireTimeout bounds the steps from a free slot to the stream: a server may stop answering in
// between.
const acquireTimeout = time.Minute

// acquireSlot starts replication, and makes sure of three things while it holds the slot: that the
// epoch is ours, that the slot is the one we know, and that the publication sends what we need. The
// term stays if nobody led in between, otherwise it is replaced by a new one.
//
// ctx is done with ErrServerStopping when watch sees the server shut down. From START_REPLICATION
// on a shutdown waits for our walsender, so the connection is closed then, at once: a line that is
// being created may not have noticed yet, or wait for the broker. Nothing is lost with it: no row
// was read, and nothing was reported but the slot's own position.
//
// connected is called when a connection was made, or else replication has started, and the pool is
// needed next.
func (s *Stream) acquireSlot(ctx context.Context, watch *session.ShutdownWatch, connected func()) (*session.Session, error) {
	patient := ctx
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	p, err := s.takePrepared(ctx)
	if err != nil {
		return nil, err
	}
	if p.Record == nil {
		connected()
	}
	conn := p.Stream
	abandoned := func() bool { return errors.Is(context.Cause(patient), session.ErrServerStopping) }
	letGo := context.AfterFunc(patient, func() {
		if abandoned() { // else the relay is to stop, and the next step finds out
			_ = conn.Conn().Close() // nothing is lost with it
		}
	})
	var view *slot.View
	before := s.term
	o, err := s.startStream(ctx, &p)
	connected()
	if err == nil {
		view, err = s.beginLeading(ctx, patient, conn, o)
	}
	if s.term != before {
		watch.RenewSession()
	}
	letGo() // from now on the session releases the slot
	if abandoned() {
		err = session.ErrServerStopping
	}
	if err != nil {
		source.CloseStream(conn)
		return nil, err
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		source.CloseStream(conn)
		return nil, fmt.Errorf("hijack the replication connection: %w", err)
	}
	return session.New(s.shared, watch, s.term, hijacked, p.pace, o.sent, o.from, view), nil
}

// streamOpening is what was read before START_REPLICATION was sent.
type streamOpening struct {
	was  schema.Sends // what is remembered of the publication
	sent schema.Sends // what a leader with this configuration has to remember of it
	// resumed is the position up to which this process has settled everything, if it led last and
	// the server proves that it is the same one; else 0.
	resumed pglogrepl.LSN
	from    pglogrepl.LSN // the position that was asked for; the slot's own may be higher
	// by is the record that from was chosen by.
	by *slot.Record
}

// isOf reports whether the position was chosen by what the record says now. Otherwise another relay
// led, or the slot was adopted, since it was read: that may be seconds ago.
func (o *streamOpening) isOf(now *slot.Record) bool {
	return now.Epoch == o.by.Epoch && now.Incarnation == o.by.Incarnation && now.TookUntil == o.by.TookUntil
}

// startStream makes all checks that do not need the slot, then sends START_REPLICATION. Proto 1 and
// messages are always asked for, so that an event's index in its transaction never depends on the
// configuration.
func (s *Stream) startStream(ctx context.Context, p *prepared) (o streamOpening, _ error) {
	c := s.cfg
	if err := c.Primary.CheckServer(source.ConnectedServer(p.Stream).Server); err != nil {
		return o, err
	}
	if p.Record == nil {
		if err := s.lookAgain(ctx, p); err != nil {
			return o, err
		}
	} else if err := s.checkRecord(p.Record); err != nil {
		return o, err
	}
	s.shared.SetGood(p.View)
	s.shared.Segment = p.Server.Segment
	o.was, o.sent, o.by = p.Record.Remembered(), p.Sends, p.Record
	o.resumed = s.durable.resumeFrom(p.Record)
	o.from = max(p.Record.TookUntil, o.resumed)
	return o, s.startReplication(ctx, p.Stream, p.View, o.from)
}

// lookAgain asks all that may have changed since Prepare: time has passed, or Prepare itself has
// made the slot.
func (s *Stream) lookAgain(ctx context.Context, p *prepared) (err error) {
	c := s.cfg
	if !p.isFresh() {
		if err := schema.VerifyLogged(ctx, s.pool); err != nil {
			return err
		}
		if p.Server, err = slot.CheckServer(ctx, s.pool, c); err != nil {
			return err
		}
	}
	rec, view, err := slot.ReadBoth(ctx, s.pool, c.Slot)
	if err != nil {
		return err
	}
	if rec == nil { // it existed: this runs after prepare
		return &event.Stop{
			Code: event.ExitOperator, Reason: "slot_lost",
			What: fmt.Sprintf("cdc_relay.slots no longer has a row for slot %q: the relay was torn down", c.Slot),
			Fix:  "start the relay again: it creates a new slot, or reports how to accept the existing one",
		}
	}
	if view == nil || rec.State != slot.StateReady {
		return errPrepareAgain // its table of cases says what to do
	}
	if rec.PromotedOn(p.ID) { // on a service that does not say its timeline only this shows it
		return errPromoted
	}
	if err := slot.CheckIdentity(c, rec, view, p.ID); err != nil {
		return err
	}
	if err := s.checkRecord(rec); err != nil {
		return err
	}
	p.Record, p.View = rec, view
	p.Sends, err = slot.CheckPublication(ctx, s.pool, c, rec)
	return err
}

// startReplication sends START_REPLICATION from a position. Before that the slot becomes a failover
// slot if that is asked for. The server starts at the slot's own position if that is higher, as it
// usually is. After a restart of the server, which does not save the slot at each report, it may be
// lower than what this process has settled.
func (s *Stream) startReplication(ctx context.Context, conn *pgconn.PgConn, view *slot.View, from pglogrepl.LSN) error {
	c := s.cfg
	err := slot.MakeFailover(ctx, conn, c, view)
	if source.SQLState(err) == "55006" { // object_in_use
		return errTaken
	}
	if err != nil {
		return err
	}
	err = pglogrepl.StartReplication(ctx, conn, c.Slot, from, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{
			"proto_version '1'",
			"publication_names " + source.QuoteText(source.QuoteName(c.Publication)),
			"messages 'true'",
		},
	})
	if source.SQLState(err) == "55006" { // object_in_use
		return errTaken
	}
	if err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	return nil
}

// beginLeading makes this process the leader, or goes on with its term, while our walsender holds
// the slot. The epoch is read, or raised, after START_REPLICATION: an earlier holder of the slot
// has raised it by then, or cannot raise it without holding the slot again.
//
// Creating a new line may take longer than all other steps, so it has its own context: patient is
// done when the relay is to stop. The slot is returned as it was before the first report.
func (s *Stream) beginLeading(ctx, patient context.Context, conn *pgconn.PgConn, o streamOpening) (*slot.View, error) {
	c := s.cfg
	rec, err := slot.ReadRecord(ctx, s.pool, c.Slot)
	if err != nil {
		return nil, err
	}
	if rec == nil || rec.State != slot.StateReady {
		return nil, errPrepareAgain
	}
	if !o.isOf(rec) {
		return nil, slot.ErrRememberedChanged
	}
	old := s.term
	if old != nil && old.IsContinued(rec) {
		view, err := slot.ReadActive(ctx, s.pool, c, source.BackendPID(conn.CustomData()))
		if err != nil {
			return nil, err
		}
		if err := slot.CheckPosition(c, rec, view, pglogrepl.LSN(old.Reported.Load())); err != nil {
			return nil, err
		}
		return view, s.rememberSends(ctx, rec, o, view)
	}
	if old != nil {
		c.Log.Warn("another relay led in between, or the slot was adopted: reading the slot again from its position; nothing is lost, some events may be sent twice",
			zap.Int64("epoch", old.Epoch), zap.Int64("now", rec.Epoch), zap.Int64("incarnation", rec.Incarnation))
		s.endTerm()
	}
	epoch, err := raiseEpoch(ctx, s.pool, c)
	if err != nil {
		return nil, err
	}
	if err := source.EndFormer(ctx, s.pool, c, epoch); err != nil {
		return nil, err
	}
	view, err := slot.ReadActive(ctx, s.pool, c, source.BackendPID(conn.CustomData()))
	if err != nil {
		return nil, err
	}
	if rec, err = slot.ReadRecord(ctx, s.pool, c.Slot); err != nil {
		return nil, err
	}
	if rec == nil || rec.Epoch != epoch {
		return nil, errPrepareAgain
	}
	if err := slot.CheckPosition(c, rec, view, 0); err != nil {
		return nil, err
	}
	s.durable = durableState{epoch: epoch, raised: rec.Raised, flushLimit: rec.FlushLimit, settled: o.resumed}
	if err := s.rememberSends(ctx, rec, o, view); err != nil {
		return nil, err
	}
	from := max(view.ConfirmedFlush, o.resumed)
	done := keepAlive(patient, conn, c.WALSenderTimeout/3, view.ConfirmedFlush)
	s.term, err = session.NewTerm(patient, s.pool, c, rec, from, view.ConfirmedFlush)
	done()
	if err != nil {
		return nil, err
	}
	c.Log.Info("leading", zap.String("slot", c.Slot), zap.Int64("epoch", epoch), zap.Stringer("lsn", from))
	return view, nil
}

// rememberSends makes durable, before the first row passes, what this session relays. o was read
// before this relay held the slot: if another leader has written since, everything is checked
// again.
func (s *Stream) rememberSends(ctx context.Context, rec *slot.Record, o streamOpening, view *slot.View) error {
	if !reflect.DeepEqual(rec.Remembered(), o.was) {
		return slot.ErrRememberedChanged
	}
	return slot.RememberSends(ctx, s.pool, s.cfg, rec.Epoch, rec, o.sent, max(view.ConfirmedFlush, o.from))
}

// keepAlive reports the slot's own position at intervals until callOff is called. Creating a line
// may take longer than wal_sender_timeout, with a million ordering groups to count, and there is no
// reporter and no reader yet (TestLineThatTakesItsTime).
func keepAlive(ctx context.Context, conn *pgconn.PgConn, every time.Duration, at pglogrepl.LSN) (callOff func()) {
	ctx, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	writing.Go(func() {
		for source.Sleep(ctx, every) {
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

// raiseEpoch fences former leaders: from now on their statements change nothing. If a session has
// locked the row for a second, stopped inside a statement, it is ended: endBlockers.
func raiseEpoch(ctx context.Context, pool *pgxpool.Pool, c *source.Config) (int64, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	pid := source.BackendPID(conn.Conn().PgConn().CustomData())
	for try := 0; ; try++ {
		var epoch int64
		unblock := time.AfterFunc(time.Second, func() { endBlockers(ctx, pool, c, pid) })
		err := conn.QueryRow(ctx, `UPDATE cdc_relay.slots SET epoch = epoch + 1, leader = $2, changed_at = now()
			WHERE slot = $1 AND state = 'ready' RETURNING epoch`, c.Slot, slot.RelayName(c)).Scan(&epoch)
		unblock.Stop()
		switch {
		case err == nil:
			return epoch, nil
		case source.IsNoRows(err):
			return 0, errPrepareAgain
		case source.SQLState(err) == "55P03" && try < 3: // lock_timeout
			continue
		}
		return 0, fmt.Errorf("raise epoch: %w", err)
	}
}

// endBlockers ends sessions of this relay's application name and role that block the session pid.
func endBlockers(ctx context.Context, pool *pgxpool.Pool, c *source.Config, pid uint32) {
	tag, err := pool.Exec(ctx, `SELECT pg_terminate_backend(a.pid) FROM unnest(pg_blocking_pids($1)) b(pid)
		JOIN pg_stat_activity a ON a.pid = b.pid WHERE a.application_name = $2 AND a.usename = current_user`,
		int32(pid), c.ApplicationName())
	if err == nil && tag.RowsAffected() > 0 {
		c.Log.Warn("ended sessions of a former leader that blocked the new epoch", zap.Int64("sessions", tag.RowsAffected()))
	}
}

const standbyPoll = 250 * time.Millisecond // how often a standby asks whether the slot is free

// standBy returns when nobody reads the slot. Another cdc-relay is waited for. So is a session that
// calls a function on the slot, as a psql that peeks at it: it harms nothing, unless the slot is
// not where it was when the function has ended. A function moves the slot at its end, so the first
// look at it is early enough. A walsender may have moved it before the first look, and rows that it
// took are rows that we then never see: so no other program may stream from the slot, however
// briefly (TestSlotMovedByAProgramThatLeaves).
func (s *Stream) standBy(ctx context.Context) error {
	if p := &s.prepared; p.isFresh() && p.Record != nil && !p.View.Active() && s.visitor == (visitor{}) {
		return nil
	}
	walsenders := 0 // looks at one that is not of a relay
	// at a start mostly once, with a statement that is asked again
	var asking source.Querier = s.pool
	for {
		rec, view, err := slot.ReadBoth(ctx, asking, s.cfg.Slot)
		if err != nil {
			return err
		}
		if view == nil || !view.Active() {
			err := s.visitor.movedStop(s.cfg, rec, view)
			s.visitor = visitor{}
			return err // a missing slot is start's to explain
		}
		s.dropPrepared() // it may take long
		switch named := view.Holder+view.HolderUser != ""; {
		case named && view.Streams && !view.ReadByRelay():
			// Checked twice: a program that is about to leave has no name for a moment.
			if walsenders++; walsenders > 1 {
				return slot.InUseError(s.cfg, view)
			}
		case named && !view.Streams:
			s.visitor.noteVisitor(s.cfg, rec, view)
			s.showWaiting(s.visitor.name)
		case view.ReadByRelay():
			s.visitor = visitor{} // a leader moves the slot
			s.standBehind(rec, view)
		case s.visitor.name == "":
			s.standBehind(rec, view)
		}
		if !source.Sleep(ctx, standbyPoll) {
			return ctx.Err()
		}
		asking = slot.AsStandby(s.pool, s.cfg)
	}
}

// visitor is a session that calls a function on the slot, and the slot as it was when it, or
// another one before it, was first seen.
type visitor struct {
	name  string // with its pid
	epoch int64
	at    pglogrepl.LSN
}

// noteVisitor records who holds the slot, and at first where the slot is. It stays known when a
// later look fails.
func (v *visitor) noteVisitor(c *source.Config, rec *slot.Record, view *slot.View) {
	if v.name == "" && rec != nil {
		v.epoch, v.at = rec.Epoch, view.ConfirmedFlush
	}
	v.name = slot.InUseError(c, view).Error()
}

// movedStop is the finding that the slot, free again, was moved while a visitor held it. Below the
// flush limit nothing else would show that. No relay moved it: a new leader would have raised the
// epoch, which is read after the slot, and the former one records what it reported when it stops.
func (v *visitor) movedStop(c *source.Config, rec *slot.Record, view *slot.View) error {
	if v.at == 0 || rec == nil || view == nil || rec.Epoch != v.epoch || view.ConfirmedFlush <= max(v.at, rec.Reported) {
		return nil
	}
	return source.SlotMoved(fmt.Sprintf("%s, and was moved meanwhile from %s to %s: rows committed in between may be missing", v.name, v.at, view.ConfirmedFlush))
}

// standBehind distinguishes two cases: our own lost session, whose end its walsender has not
// noticed yet, and another relay that leads. In the second case it discards the line's memory,
// because the other relay reads these events again, and it shows who leads.
func (s *Stream) standBehind(rec *slot.Record, view *slot.View) {
	if s.term != nil && rec != nil && s.term.IsContinued(rec) {
		s.showWaiting("the slot is still active for our lost session")
		return
	}
	s.endTerm()
	s.status.SetSlot(view)
	// all relays of a slot have the same name in PostgreSQL, so its own name is added
	leader, named := "", ""
	if rec != nil && rec.Leader != "" {
		leader, named = rec.Leader, rec.Leader+", "
	}
	s.status.EnterPhase(slot.Standby, fmt.Sprintf("slot is active for %s (%sbackend %d)", view.Holder, named, view.ActivePID))
	s.status.SetLeader(leader)
	why := fmt.Sprintf("slot %q is active for %s (pid %d)", s.cfg.Slot, view.Holder, view.ActivePID)
	if s.loggedReason != why {
		s.loggedReason = why
		s.cfg.Log.Info("standing by", zap.String("reason", why))
	}
}
