// The reader: it reads the replication connection, has its messages decoded, and gives
// transactions, events and keepalives to the line.

package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// reading is the reader's own state between two messages.
type reading struct {
	*Session
	// one per session, not per message: a context per row costs more than the row
	ctx      context.Context
	encoding *decode.Encoding // of the database's text
	decoder  *decode.Decoder
	msg      decode.Message
	xid      uint32 // of the transaction that is read
	strayed  bool   // a stray row was logged
}

// read is the reader: it owns reads of the connection, and all calls of the line's reading side.
// ctx ends its waits for room in the in-flight budget only; Receive is ended by the connection's
// read deadline.
func (se *Session) read(ctx context.Context) error {
	r := reading{Session: se, ctx: ctx}
	r.encoding = decode.NewEncoding(se.Encoding, r.convert)
	r.decoder = decode.New(decode.Config{
		Tables: se.sent.Ours(se.Cfg.Tables), Messages: se.Cfg.Messages, Columns: se.Cfg.Columns, Shapes: se.Cfg.Shapes,
		Dropped: se.sent.DroppedPrefixes(se.Cfg), LeftOut: se.Cfg.MaxEventBytes > 0, Encoding: r.encoding, Keys: se.t.keys,
	})
	// What was read is published before the reader waits for more: the rows of one read in few
	// calls, and those of a small transaction once it is complete.
	se.coalescer.before = func() { se.t.Line.Wake(false) }
	defer se.t.Line.Wake(true)
	for {
		msg, err := se.front.Receive()
		if err != nil {
			if err = se.interrupted(err); err != nil {
				return err
			}
			continue
		}
		se.frames.Add(1)
		err = r.message(msg)
		se.frames.Add(1)
		if err != nil {
			return err
		}
	}
}

// interrupted returns what a read error means. A deadline is ours: it ends the reader at a
// transaction boundary, and is ignored by a reader that may still finish its transaction.
func (se *Session) interrupted(err error) error {
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
	if se.cutAt.Load() {
		return errReadCut
	}
	return nil
}

func (r *reading) message(msg pgproto3.BackendMessage) error {
	switch m := msg.(type) {
	case *pgproto3.CopyData:
		return r.copyData(m.Data)
	case *pgproto3.ErrorResponse: // while streaming a server error comes as a message
		return r.serverError(m)
	case *pgproto3.NoticeResponse:
		return r.notice(m)
	case *pgproto3.CopyDone, *pgproto3.CommandComplete, *pgproto3.ReadyForQuery:
		return errors.New("the server ended the stream")
	}
	return nil // ParameterStatus, NotificationResponse
}

func (r *reading) copyData(data []byte) error {
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
			r.coalescer.late = xlog.ServerTime.Sub(r.msg.CommitTime)
		}
		return r.frame()
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		keepalive, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		if err := r.keepalive(keepalive.ServerWALEnd, keepalive.ReplyRequested); err != nil {
			return err
		}
		if r.stopping.Load() && !r.inTx.Load() {
			return errReadStopped
		}
		return nil
	}
	return fmt.Errorf("unknown replication message %q", data[0])
}

func (r *reading) frame() error {
	if r.inTx.Load() {
		r.coalescer.frames++
	}
	switch r.msg.Kind {
	case decode.Begin:
		r.inTx.Store(true)
		r.coalescer.open = true
		r.admitted, r.xid = 0, r.msg.Xid
		if err := r.again.begin(r.Cfg, r.msg.Commit, r.msg.Xid); err != nil {
			return err
		}
		if r.msg.Commit > r.t.newest.commit {
			r.t.newest = LastTransaction{commit: r.msg.Commit, xid: r.msg.Xid}
		}
		return r.t.Line.Begin(r.msg.Commit, r.msg.Xid)
	case decode.Row:
		if r.msg.Stray {
			r.stray(r.msg.Table)
		}
		return r.event(r.msg.Event)
	case decode.Commit:
		r.coalescer.frames, r.coalescer.open, r.coalescer.closed = 0, false, r.admitted > 0
		r.t.Line.Commit(r.msg.End)
		r.advance(r.msg.End)
		r.inTx.Store(false)
		if r.stopping.Load() {
			return errReadStopped
		}
	case decode.Skipped:
		r.skipped(r.msg.Reason)
	case decode.Replaced:
		return r.replaced(r.msg.Table, r.msg.OID)
	case decode.Foreign:
		return r.notConfigured(r.msg.Name, r.msg.OID, r.msg.Reason)
	case decode.Other:
	}
	if r.msg.Shape != nil {
		return r.shaped(r.msg.Shape, r.msg.OID)
	}
	return nil
}

func (r *reading) event(ev *event.Event) error {
	if err := r.t.Line.Event(r.ctx, ev); err != nil {
		if r.ctx.Err() != nil {
			return errReadCut
		}
		return err
	}
	r.admitted++
	return nil
}

// stray counts an event whose row does not have its transaction, and says so once in a session.
func (r *reading) stray(of *decode.Table) {
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

// shaped completes the shape of a table that the stream has described, and gives it back to the
// decoder. NOT NULL and defaults are those that the columns have now, as with Debezium; they may be
// newer than the rows. A column that no longer exists counts as optional and without default. Types
// are those of the stream, so a column that was altered, renamed or dropped since, or whose type
// was, does not change earlier rows.
func (r *reading) shaped(shape *event.Shape, oid uint32) error {
	r.t.Line.Wake(true) // what was read need not wait for the catalogue
	if err := publication.CompleteShape(r.ctx, r.Pool, r.Cfg.Types, shape, oid); err != nil {
		if r.ctx.Err() != nil {
			return errReadCut
		}
		return err
	}
	return r.decoder.Shaped(oid, shape)
}

// convert asks the server for characters that are new in this session, where the database is not
// UTF-8.
func (r *reading) convert(characters [][]byte) ([][]byte, error) {
	r.t.Line.Wake(true) // what was read need not wait for the answer
	utf8, err := source.Convert(r.ctx, r.Pool, characters)
	if r.ctx.Err() != nil {
		return nil, errReadCut
	}
	return utf8, err
}

// keepalive is a commit without events when it comes outside a transaction: everything up to it
// that concerns us was sent before it. Inside a transaction it tells how far the server has read,
// and that it is busy with data that is not for us.
func (r *reading) keepalive(end pglogrepl.LSN, reply bool) error {
	if r.inTx.Load() {
		r.t.Line.Wake(true)
	} else if passes, err := r.again.passes(r.Cfg, end); err != nil {
		return err
	} else if passes {
		r.t.Line.Keepalive(end)
	}
	r.advance(end)
	if reply {
		signal(r.replyNow)
		signal(r.suspect) // we report more often than it needs to ask, unless it is about to end
	}
	return nil
}

func (se *Session) advance(to pglogrepl.LSN) {
	if uint64(to) > se.Received.Load() { // this goroutine is the only writer
		se.Received.Store(uint64(to))
		se.passed(uint64(to))
	}
}
