// The reader: it reads the replication connection, has its messages decoded, and gives
// transactions, events and keepalives to the line.

package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// streamReader is the reader's own state between two messages.
type streamReader struct {
	*Session
	// one per session, not per message: a context per row costs more than the row
	ctx     context.Context
	decoder *decode.Decoder
	msg     decode.Message
	xid     uint32 // of the transaction that is read
	strayed bool   // a stray row was logged
}

// readStream is the reader: it owns reads of the connection, and all calls of the line's reading
// side. ctx ends its waits for room in the in-flight budget only; Receive is ended by the
// connection's read deadline.
func (se *Session) readStream(ctx context.Context) error {
	r := streamReader{Session: se, ctx: ctx}
	r.decoder = decode.New(decode.Config{
		Tables: se.sends.WithKnownOIDs(se.Cfg.Tables), Messages: se.Cfg.Messages, Columns: se.Cfg.Columns, Shapes: se.Cfg.Shapes,
		Dropped: se.sends.DroppedPrefixes(se.Cfg), LeftOut: se.Cfg.MaxEventBytes > 0, Keys: se.term.keys,
	})
	// What was read is published before the reader waits for more: the rows of one read in few
	// calls, and those of a small transaction once it is complete.
	se.coalescer.beforeRead = func() { se.term.Line.Wake(false) }
	defer se.term.Line.Wake(true)
	for {
		msg, err := se.front.Receive()
		if err != nil {
			if err = se.readErrorOf(err); err != nil {
				return err
			}
			continue
		}
		se.frames.Add(1)
		err = r.handleMessage(msg)
		se.frames.Add(1)
		if err != nil {
			return err
		}
	}
}

// readErrorOf returns the error with which the reader ends after a read error; nil: it reads on. A
// deadline was set by ourselves: it ends the reader at a transaction boundary, or at once if it is
// cut. A reader that may still finish its transaction reads on.
func (se *Session) readErrorOf(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("read from the replication connection: %w", err)
	}
	if !se.stopping.Load() {
		return errors.New("the session was ended") // by run, after something else failed
	}
	if !se.inTx.Load() {
		return errReadStopped
	}
	// Reset the deadline first, then check the flag: cutReader does it the other way round, so one
	// of the two is always seen.
	if err := se.conn.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("read from the replication connection: %w", err)
	}
	if se.cutNow.Load() {
		return errReadCut
	}
	return nil
}

func (r *streamReader) handleMessage(msg pgproto3.BackendMessage) error {
	switch m := msg.(type) {
	case *pgproto3.CopyData:
		return r.handleCopyData(m.Data)
	case *pgproto3.ErrorResponse: // while streaming a server error comes as a message
		return r.serverErrorStop(m)
	case *pgproto3.NoticeResponse:
		return r.stopAtNotice(m)
	case *pgproto3.CopyDone, *pgproto3.CommandComplete, *pgproto3.ReadyForQuery:
		return errors.New("the server ended the stream")
	}
	return nil // ParameterStatus, NotificationResponse
}

func (r *streamReader) handleCopyData(data []byte) error {
	if len(data) == 0 {
		return errors.New("empty replication message")
	}
	switch data[0] {
	case pglogrepl.XLogDataByteID: // its two positions mean nothing in logical mode
		xlog, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		if err := r.decoder.Decode(xlog.WALData, &r.msg); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		if r.msg.Kind == decode.Begin {
			r.coalescer.lateness = xlog.ServerTime.Sub(r.msg.CommitTime)
		}
		return r.handleFrame()
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		keepalive, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		if err := r.handleKeepalive(keepalive.ServerWALEnd, keepalive.ReplyRequested); err != nil {
			return err
		}
		if r.stopping.Load() && !r.inTx.Load() {
			return errReadStopped
		}
		return nil
	}
	return fmt.Errorf("unknown replication message %q", data[0])
}

func (r *streamReader) handleFrame() error {
	if r.inTx.Load() {
		r.coalescer.frames++
	}
	switch r.msg.Kind {
	case decode.Begin:
		r.inTx.Store(true)
		r.coalescer.inTransaction = true
		r.admitted, r.xid = 0, r.msg.Xid
		if err := r.lastRead.checkBegin(r.Cfg, r.msg.Commit, r.msg.Xid); err != nil {
			return err
		}
		if r.msg.Commit > r.term.newest.commit {
			r.term.newest = lastTransaction{commit: r.msg.Commit, xid: r.msg.Xid}
		}
		return r.term.Line.Begin(r.msg.Commit, r.msg.Xid)
	case decode.Row:
		if r.msg.Stray {
			r.reportStray(r.msg.Table)
		}
		return r.handleEvent(r.msg.Event)
	case decode.Commit:
		r.coalescer.frames, r.coalescer.inTransaction, r.coalescer.eventsClosed = 0, false, r.admitted > 0
		r.term.Line.Commit(r.msg.End)
		r.noteReceived(r.msg.End)
		r.inTx.Store(false)
		if r.stopping.Load() {
			return errReadStopped
		}
	case decode.Skipped:
		r.countSkipped(r.msg.Reason)
	case decode.Replaced:
		return r.stopAtReplaced(r.msg.Table, r.msg.OID)
	case decode.Foreign:
		return r.stopAtNotConfigured(r.msg.Name, r.msg.OID, r.msg.Reason)
	case decode.Other:
	}
	if r.msg.Shape != nil {
		return r.completeShape(r.msg.Shape, r.msg.OID)
	}
	return nil
}

func (r *streamReader) handleEvent(ev *event.Event) error {
	if err := r.term.Line.Event(r.ctx, ev); err != nil {
		if r.ctx.Err() != nil {
			return errReadCut
		}
		return err
	}
	r.admitted++
	return nil
}

// reportStray counts an event whose row does not name the transaction that wrote it, and logs that
// once in a session.
func (r *streamReader) reportStray(of *decode.Table) {
	if r.Cfg.Hooks.Stray != nil {
		r.Cfg.Hooks.Stray()
	}
	if r.strayed {
		return
	}
	r.strayed = true
	r.Cfg.Log.Warn("a row does not have the transaction that wrote it: it is delivered, and not recorded as sent, so retention leaves it",
		zap.Stringer("table", of), zap.String("fix", "run `cdc-relay check`: it names the column, its default and its trigger"))
}

// completeShape completes the shape of a table that the stream has described, and gives it back to
// the decoder. NOT NULL and defaults are those that the columns have now, as with Debezium; they
// may be newer than the rows. A column that no longer exists counts as optional and without
// default. Types are those of the stream, so a column that was altered, renamed or dropped since,
// or whose type was, does not change earlier rows.
func (r *streamReader) completeShape(shape *event.Shape, oid uint32) error {
	r.term.Line.Wake(true) // what was read need not wait for the catalogue
	if err := schema.CompleteShape(r.ctx, r.Pool, r.Cfg.Types, shape, oid); err != nil {
		if r.ctx.Err() != nil {
			return errReadCut
		}
		return err
	}
	return r.decoder.Shaped(oid, shape)
}

// handleKeepalive handles a keepalive. Outside a transaction it counts as a commit without events:
// everything up to it that concerns us was sent before it. Inside a transaction it says that the
// server is busy with data that is not for us.
func (r *streamReader) handleKeepalive(end pglogrepl.LSN, reply bool) error {
	if r.inTx.Load() {
		r.term.Line.Wake(true)
	} else if passes, err := r.lastRead.checkKeepalive(r.Cfg, end); err != nil {
		return err
	} else if passes {
		r.term.Line.Keepalive(end)
	}
	r.noteReceived(end)
	if reply {
		signal(r.replyNow)
		signal(r.suspect) // we report more often than it needs to ask, unless it is about to end
	}
	return nil
}

// noteReceived notes that the stream has come to a position: then the named standbys have it, too.
func (se *Session) noteReceived(to pglogrepl.LSN) {
	if uint64(to) > se.Received.Load() { // this goroutine is the only writer
		se.Received.Store(uint64(to))
		se.noteStandbysAt(uint64(to))
	}
}

// lastTransaction checks that a stream that is read again still has the transaction that was read
// last, in whole or in part. If the server was rolled back while it ran, such as a virtual machine
// resumed with its memory, another transaction may be at that position, and would be skipped as a
// repeat. The zero value expects nothing.
type lastTransaction struct {
	commit pglogrepl.LSN // start of its commit record; 0: nothing is expected, or it has come
	xid    uint32
	from   pglogrepl.LSN // where the stream that is read again begins
}

// checkBegin is told each transaction of the stream. It returns a Stop if the expected one did not
// come.
func (a *lastTransaction) checkBegin(c *source.Config, commit pglogrepl.LSN, xid uint32) error {
	switch {
	case a.commit == 0 || commit < a.commit:
		return nil
	case commit == a.commit && xid == a.xid:
		a.commit = 0
		return nil
	}
	return a.missingStop(c, commit)
}

// checkKeepalive reports whether a keepalive may be used: until the transaction was seen again, a
// keepalive must not confirm anything before it.
func (a *lastTransaction) checkKeepalive(c *source.Config, end pglogrepl.LSN) (bool, error) {
	if a.commit == 0 {
		return true, nil
	}
	if end > a.commit {
		return false, a.missingStop(c, end)
	}
	return false, nil
}

func (a *lastTransaction) missingStop(c *source.Config, at pglogrepl.LSN) error {
	return c.RolledBack(fmt.Sprintf("transaction %d, which this relay had read at %s, is no longer in the WAL (now at %s)", a.xid, a.commit, at), a.from, max(a.commit, at))
}

// stopAtNotConfigured is called for the first row, in this session, of a table that is not
// configured, and for each message of a prefix that was relayed before. It returns the error that
// ends the session; nil: the row is not ours, and was counted as skipped.
//
// A row must not be skipped if somebody meant it to be relayed. During a rolling deployment the
// leader still has the old configuration while the table is in the publication already; after its
// rollback the other way round. The leader cannot know which configuration is right, so it stops
// before the row. Its transaction stays in the slot, for a relay that knows the table.
func (r *streamReader) stopAtNotConfigured(name string, oid uint32, reason string) error {
	if oid == 0 && !slices.Contains(r.sends.Prefixes, name) { // an operator ignores it
		r.countSkipped(reason)
		return nil
	}
	r.term.Line.Wake(true) // what was read need not wait for the catalogue
	err := r.leftOutStop(name, oid)
	if err != nil { // an operator may have declared it ignored meanwhile: the log has warned
		// Only the row of our own term counts, whatever its state. A row that is gone, or another
		// leader's, proves nothing: the Stop stays.
		rec, lookErr := slot.ReadRecord(r.ctx, r.Pool, r.Cfg.Slot)
		switch {
		case lookErr != nil:
			err = lookErr
		case rec != nil && rec.Epoch == r.term.Epoch && rec.Sends.AcceptsFormer(r.Cfg.Tables, oid):
			return errAccepted
		case rec != nil && rec.Epoch == r.term.Epoch:
			r.sends = rec.Sends
			err = r.leftOutStop(name, oid)
		}
	}
	if err == nil {
		r.countSkipped(reason)
		return nil
	}
	if r.ctx.Err() != nil {
		return errReadCut
	}
	return err
}

// leftOutStop returns a Stop if the slot's record says that the row or message may not be skipped.
func (r *streamReader) leftOutStop(name string, oid uint32) error {
	if oid == 0 {
		if !slices.Contains(r.sends.Prefixes, name) {
			return nil
		}
		return schema.PrefixStop(r.Cfg, name)
	}
	scope, err := r.sends.FindScope(r.ctx, r.Pool, r.Cfg, oid, name)
	if err != nil {
		return err
	}
	if scope.LeftOutName, scope.LeftOutOID = r.sends.LeftOut(r.Cfg, name, scope.Tree); scope.MaySkip() {
		return nil
	}
	return scope.NotConfiguredStop(r.Cfg, name, oid)
}

// stopAtReplaced stops before the first row of another table that has the name of a configured one.
// Normally the catalogue has the new table already, and CheckPublication returns a Stop that names
// both ways to continue. A table that was created and dropped in between is only in the stream.
func (r *streamReader) stopAtReplaced(t *decode.Table, oid uint32) error {
	r.term.Line.Wake(true) // what was read need not wait for the catalogue
	if err := r.checkVisible(); err != nil {
		return err
	}
	rec, err := slot.ReadRecord(r.ctx, r.Pool, r.Cfg.Slot)
	if err == nil && rec != nil && rec.Sends.AcceptsFormer(r.Cfg.Tables, oid) {
		return errAccepted
	}
	if err == nil {
		_, err = slot.CheckPublication(r.ctx, r.Pool, r.Cfg, rec)
	}
	if err != nil {
		if r.ctx.Err() != nil {
			return errReadCut
		}
		return err
	}
	// Only now: a foreign table that has taken the configured name may be the outbox, and the
	// catalogue has said so above. One that had the name for a while, and has it no longer,
	// is still foreign.
	if slices.Contains(r.sends.Foreign, oid) {
		return nil
	}
	return &event.Stop{
		Code: event.ExitOperator, Reason: "table_replaced", Rows: &event.Rows{Name: t.String(), OID: oid},
		What: fmt.Sprintf("slot %q has rows of another table that was named %s (OID %d; the configured table has OID %d)", r.Cfg.Slot, t, oid, t.OID),
		Fix:  fmt.Sprintf("if its rows are events: %s; if they are not: %s", schema.EventsCommand(t.String(), oid), schema.SkipCommand(t.String(), oid)),
	}
}

// errAccepted ends a session whose decoder does not know yet that rows of a former table are ours:
// the next one reads them.
var errAccepted = errors.New("an operator has accepted the rows of a former table: reading them again as those of the outbox")

// checkVisible returns an error while the catalogue does not show the transaction that is read yet.
// A commit is sent a moment before it becomes visible, and long before if it waits for a
// synchronous standby. Until then the transaction holds the lock of its own id. The session is
// repeated after the error.
func (r *streamReader) checkVisible() error {
	var open bool
	err := source.Ask(r.ctx, r.Pool, "read pg_locks", `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND transactionid = $1::text::xid AND mode = 'ExclusiveLock')`,
		fmt.Sprint(r.xid)).Scan(&open)
	switch {
	case r.ctx.Err() != nil:
		return errReadCut
	case err != nil:
		return err
	case open:
		return fmt.Errorf("transaction %d, which uses the name of another table, is not visible yet", r.xid)
	}
	return nil
}

// countSkipped counts what is not an event. A message with our prefix that is not transactional is
// probably a mistake: it is logged once.
func (r *streamReader) countSkipped(reason string) {
	if r.Cfg.Hooks.Skipped != nil {
		r.Cfg.Hooks.Skipped(reason)
	}
	if reason == decode.NonTransactional && !r.warnedNonTransactional {
		r.warnedNonTransactional = true
		r.Cfg.Log.Warn("skipped a message that is not transactional: PostgreSQL sends it even if its transaction is rolled back",
			zap.String("prefix", r.Cfg.Messages.Prefix),
			zap.String("fix", fmt.Sprintf("SELECT pg_logical_emit_message(true, %s, ...)", source.QuoteText(r.Cfg.Messages.Prefix))))
	}
}

// serverErrorStop ends the session. If a publication is missing at a position that the server must
// decode (PostgreSQL 14 to 17), it is missing there for ever, even if it was created since. So the
// relay does not try again.
func (r *streamReader) serverErrorStop(m *pgproto3.ErrorResponse) error {
	err := pgconn.ErrorResponseToPgError(m)
	if err.Code == publicationUnknown && namesWord(err.Message, r.Cfg.Publication) {
		return schema.PublicationStop(r.Cfg, "did not exist when rows that wait in the slot were committed: "+err.Message, schema.RenewSlotHint(r.Cfg))
	}
	return err
}

// stopAtNotice stops at the one warning that means lost rows: PostgreSQL 18 goes on without a
// publication that is missing. Its code is matched, since its text is in the server's language
// (lc_messages is not ours to set).
func (r *streamReader) stopAtNotice(m *pgproto3.NoticeResponse) error {
	if m.Code != publicationSkipped {
		return nil
	}
	if namesWord(m.Message, r.Cfg.Publication) {
		return schema.PublicationStop(r.Cfg, "is no longer used by the server: "+m.Message, schema.RenewSlotHint(r.Cfg))
	}
	return nil
}

// The codes of a publication that is missing while a row is decoded: an error before PostgreSQL 18,
// a warning from it on.
const (
	publicationUnknown = "42704" // undefined_object
	publicationSkipped = "55000" // object_not_in_prerequisite_state
)

// namesWord reports whether message contains name as a separate word, in whatever quotes the
// language uses.
func namesWord(message, name string) bool {
	return regexp.MustCompile(`(?:^|[^\pL\p{Nd}_$])` + regexp.QuoteMeta(name) + `(?:[^\pL\p{Nd}_$]|$)`).MatchString(message)
}
