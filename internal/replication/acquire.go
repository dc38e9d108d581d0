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

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

var (
	errTaken    = errors.New("another relay acquired the slot in the meantime")
	errPromoted = errors.New("the server was promoted: prepare again")
)

// limits the steps from a free slot to the stream, because a server may stop answering in between
const acquireTimeout = time.Minute

// acquire starts replication, and makes sure of three things while it holds the slot: that the
// epoch is ours, that the slot is the one we know, and that the publication sends what we need. *t
// is the term of this process, if any; it stays valid if nobody led in between, otherwise it is
// replaced by a new one.
//
// ctx is done with ErrServerStopping when watch sees the server shut down. From START_REPLICATION
// on a shutdown waits for our walsender, so the connection is closed then, at once: a line that is
// being created may not have noticed yet, or wait for the broker. Nothing is lost with it: no row
// was read, and nothing was reported but the slot's own position.
func (s *Stream) acquire(ctx context.Context, watch *session.ShutdownWatch, t **session.Term) (*session.Session, error) {
	patient := ctx
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	conn, pace, err := session.Connect(ctx, s.cfg)
	if err != nil {
		return nil, err
	}
	abandoned := func() bool { return errors.Is(context.Cause(patient), session.ErrServerStopping) }
	letGo := context.AfterFunc(patient, func() {
		if abandoned() { // else the relay is to stop, and the next step finds out
			_ = conn.Conn().Close() // nothing is lost with it
		}
	})
	var view *slot.View
	before := *t
	o, err := s.start(ctx, conn)
	if err == nil {
		view, err = s.lead(ctx, patient, conn, t, o)
	}
	if *t != before {
		watch.Renew()
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
	return session.New(s.common, watch, *t, hijacked, pace, o.sent, o.from, view), nil
}

// opening is what was read before START_REPLICATION was sent.
type opening struct {
	was  publication.State // what is remembered of the publication
	sent publication.State // what is to be remembered of it by a leader with this configuration
	// resumed is the position up to which this process has settled everything, if it led last and
	// the server proves that it is the same one; else 0.
	resumed pglogrepl.LSN
	from    pglogrepl.LSN // the position that was asked for; the slot's own may be higher
}

// start makes all checks that do not need the slot, then sends START_REPLICATION. Proto 1 and
// messages are always asked for, so that an event's index in its transaction never depends on the
// configuration.
func (s *Stream) start(ctx context.Context, conn *pgconn.PgConn) (o opening, _ error) {
	c := s.cfg
	id, err := slot.Identify(ctx, conn)
	if err != nil {
		return o, err
	}
	if err := c.Primary.Still(source.ConnectedServer(conn).Server); err != nil {
		return o, err
	}
	if err := schema.Verify(ctx, s.pool, schema.Trust{}); err != nil {
		return o, err
	}
	rec, view, err := slot.ReadBoth(ctx, s.pool, c.Slot)
	if err != nil {
		return o, err
	}
	if rec == nil { // it existed: this runs after prepare
		return o, &event.Stop{
			Code: event.ExitOperator, Reason: "slot_lost",
			What: fmt.Sprintf("cdc_relay.slots no longer has a row for slot %q: the relay was torn down", c.Slot),
			Fix:  "start the relay again: it creates a new slot, or reports how to accept the existing one",
		}
	}
	if view == nil || rec.State != slot.StateReady {
		return o, errPrepareAgain // its table of cases says what to do
	}
	if rec.PromotedOn(id) { // on a service that does not say its timeline only this shows it
		return o, errPromoted
	}
	if err := slot.CheckIdentity(c, rec, view, id); err != nil {
		return o, err
	}
	if err := s.checkRecord(rec); err != nil {
		return o, err
	}
	if err := slot.RefuseSyncStandby(ctx, s.pool, c); err != nil {
		return o, err
	}
	if err := schema.CheckLogged(ctx, s.pool); err != nil {
		return o, err
	}
	o.was = rec.Remembered()
	if o.sent, err = slot.CheckPublication(ctx, s.pool, c, rec); err != nil {
		return o, err
	}
	s.common.SetGood(view)
	var names []byte // in the database's encoding
	if err := s.pool.QueryRow(ctx, `SELECT pg_size_bytes(current_setting('wal_segment_size')), current_setting('server_encoding'), convert_to($1, current_setting('server_encoding')::name)`,
		source.QuoteText(source.QuoteName(c.Publication))).Scan(&s.common.Segment, &s.common.Encoding, &names); err != nil {
		return o, fmt.Errorf("read wal_segment_size and server_encoding: %w", err)
	}
	if s.common.Encoding != "UTF8" {
		if err := source.SendStored(ctx, conn); err != nil {
			return o, err
		}
	}
	o.resumed = s.durable.resume(rec)
	o.from = max(rec.TookUntil, o.resumed)
	return o, s.startReplication(ctx, conn, view, o.from, string(names))
}

// startReplication sends START_REPLICATION from a position. Before that the slot becomes a failover
// slot if that is asked for. The server starts at the slot's own position if that is higher, as it
// usually is. After a restart of the server, which does not save the slot at each report, it may be
// lower than what this process has settled. names is the publication, in the database's encoding.
func (s *Stream) startReplication(ctx context.Context, conn *pgconn.PgConn, view *slot.View, from pglogrepl.LSN, names string) error {
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
			"publication_names " + names,
			"messages 'true'",
		},
	})
	if source.SQLState(err) == "55006" { // object_in_use
		return errTaken
	}
	if err != nil {
		source.MakeReadable(source.NewEncoding(ctx, s.common.Encoding, s.pool), err)
		return fmt.Errorf("start replication: %w", err)
	}
	return nil
}

// lead runs while our walsender holds the slot. The epoch is read, or raised, after
// START_REPLICATION: an earlier holder of the slot has raised it by then, or cannot raise it
// without holding the slot again.
//
// Creating a new line may take longer than all other steps, so it has its own context: patient is
// done when the relay is to stop. lead returns the slot as it was before the first report.
func (s *Stream) lead(ctx, patient context.Context, conn *pgconn.PgConn, t **session.Term, o opening) (*slot.View, error) {
	c := s.cfg
	rec, err := slot.ReadRecord(ctx, s.pool, c.Slot)
	if err != nil {
		return nil, err
	}
	if rec == nil || rec.State != slot.StateReady {
		return nil, errPrepareAgain
	}
	old := *t
	if old != nil && old.Continues(rec) {
		view, err := slot.ReadActive(ctx, s.pool, c, source.BackendPID(conn.CustomData()))
		if err != nil {
			return nil, err
		}
		if err := slot.CheckPosition(c, rec, view, pglogrepl.LSN(old.Reported.Load())); err != nil {
			return nil, err
		}
		return view, s.remember(ctx, rec, o, view)
	}
	if old != nil {
		c.Log.Warn("another relay led in between, or the slot was adopted: reading the slot again from its position; nothing is lost, some events may be sent twice",
			zap.Int64("epoch", old.Epoch), zap.Int64("now", rec.Epoch), zap.Int64("incarnation", rec.Incarnation))
		old.End()
		*t = nil
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
	s.durable = durable{epoch: epoch, raised: rec.Raised, flushLimit: rec.FlushLimit, settled: o.resumed}
	if err := s.remember(ctx, rec, o, view); err != nil {
		return nil, err
	}
	from := max(view.ConfirmedFlush, o.resumed)
	done := keepAlive(patient, conn, c.WALSenderTimeout/3, view.ConfirmedFlush)
	*t, err = session.NewTerm(patient, s.pool, c, rec, from, view.ConfirmedFlush)
	done()
	if err != nil {
		return nil, err
	}
	c.Log.Info("leading", zap.String("slot", c.Slot), zap.Int64("epoch", epoch), zap.Stringer("lsn", from))
	return view, nil
}

// remember makes durable, before the first row passes, what this session relays. That was read
// before this relay held the slot: if another leader has written since, everything is checked
// again.
func (s *Stream) remember(ctx context.Context, rec *slot.Record, o opening, view *slot.View) error {
	if !reflect.DeepEqual(rec.Remembered(), o.was) {
		return slot.ErrRememberedChanged
	}
	return slot.Remember(ctx, s.pool, s.cfg, rec.Epoch, rec, o.sent, max(view.ConfirmedFlush, o.from))
}

// keepAlive reports the slot's own position at intervals until callOff is called. Creating a line
// may take longer than wal_sender_timeout, with a million ordering groups to count, and there is no
// reporter and no reader yet.
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
