// Events of rows.

package recovery

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/tablerows"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// events makes rows of the retry table of rows of the outbox, each as the stream would have made it
// and the writer would have deferred it.
type events struct {
	*run
	ctx         context.Context
	rows        *merged
	decoder     *decode.Decoder
	incarnation int64
	positions   positions
	rank        int64
	next, end   int64 // numbers that are leased and not used
	of          int64 // as were counted
	shown       time.Time

	open   pglogrepl.LSN // the commit of the transaction that is open to the decoder
	msg    decode.Message
	frame  []byte
	insert []byte
	row    store.Row
}

// newEvents makes the decoder and describes the tables to it.
func (r *run) newEvents(ctx context.Context, rows *merged, incarnation int64, at positions) (*events, error) {
	ev := &events{run: r, ctx: ctx, rows: rows, incarnation: incarnation, positions: at, of: r.report.counted}
	tables := make([]tablerows.Table, len(r.tables))
	for i := range r.tables {
		tables[i] = r.tables[i].Table
	}
	var err error
	ev.decoder, err = tablerows.NewDecoder(ctx, r.pool, r.c, tables)
	return ev, err
}

// read is the next row for the retry table; io.EOF: there is none. It is valid until the next call.
func (e *events) read() (*store.Row, error) {
	if err := e.ctx.Err(); err != nil {
		return nil, err
	}
	row, err := e.rows.next(e.ctx)
	if err != nil {
		return nil, e.readError("read rows", e.asWhereError(err))
	}
	if row == nil {
		e.tell(true)
		return nil, cmp.Or(e.checkTables(), io.EOF)
	}
	if err := e.decode(row); err != nil {
		return nil, err
	}
	if err := e.number(); err != nil {
		return nil, err
	}
	e.rank++
	e.tell(false)
	return &e.row, nil
}

// checkTables looks at the tables again, while their locks are still held (tableread.Read).
func (e *events) checkTables() error {
	for _, t := range e.tables {
		if err := tableread.Check(e.ctx, e.pool, source.QuoteTable(t.Table.Table)); err != nil {
			return e.readError("read rows", err)
		}
	}
	return nil
}

// decode makes the event of a row: a transaction of its own to the decoder.
func (e *events) decode(row *row) error {
	if e.open != 0 { // the row before is no longer needed
		e.frame = tablerows.CommitFrame(e.frame, e.open)
		if err := e.decoder.Decode(e.frame, &e.msg); err != nil {
			return err
		}
	}
	pos, err := e.positions.of(e.rank)
	if err != nil {
		return err
	}
	e.open = pos.Commit
	at := row.time
	if !row.timed {
		at = e.began.UnixMicro()
	}
	e.frame = tablerows.BeginFrame(e.frame, pos.Commit, at)
	if err := e.decoder.Decode(e.frame, &e.msg); err != nil {
		return err
	}
	e.decoder.SetIndex(pos.Index)
	e.insert = tablerows.InsertFrame(e.insert, e.tables[row.table].OID, row.values, row.lengths)
	if err := e.decoder.Decode(e.insert, &e.msg); err != nil {
		return err
	}
	if e.msg.Kind != decode.Row {
		return fmt.Errorf("a row of %s was not taken for an event", e.tables[row.table])
	}
	ev := *e.msg.Event
	if !row.timed { // the best that is known: its timestamp column, else now
		ev.CommitTime = ev.Time
	}
	e.place(&ev)
	return nil
}

// place fills in where the event goes: what a lane would have found out when it deferred it.
//
// A topic's partitions are known only to a relay that is connected. Then the row has no destination
// (Dest 0, which is none's). That changes nothing but how the row is found: a lane that reads it
// asks the sink again where it belongs (retry.foundOf), and a walk leaves out rows of a paused
// destination by what is stored here, so it reads those without one in any case. Rows whose topic
// has got more partitions since they were deferred are in the same position.
func (e *events) place(ev *event.Event) {
	route := e.opt.Sink.Route(ev)
	own := route
	if s := e.resend; s != nil && (s.route.Name != nil || s.route.RoutingKey != nil) {
		if s.route.Name != nil {
			route.Name = s.route.Name
		}
		if s.route.RoutingKey != nil {
			route.RoutingKey = s.route.RoutingKey
		}
		ev.Route = &route // it is placed by that
		// That does not make the row one that was sent. Of a copy without its values the
		// transaction stays: it keeps the row from retention.
		if !bytes.Equal(own.Name, route.Name) || !bytes.Equal(own.RoutingKey, route.RoutingKey) {
			ev.Origin.Relation = 0
			if ev.LeftOut == nil {
				ev.Origin.Tx = 0
			}
		}
	}
	place, known := e.opt.Sink.Place(ev)
	if !known {
		place = sink.Place{}
		if route.Name != nil {
			place.ExchangeOrTopic = sink.ExchangeOrTopicOf(route.Name)
		}
	}
	ev.Route = &route
	group, ordered := e.opt.Scope.Group(ev, place.ExchangeOrTopic)
	e.row = store.Row{
		Incarnation: e.incarnation, Event: *ev, Group: group, Ordered: ordered,
		ExchangeOrTopic: place.ExchangeOrTopic, Dest: place.Dest,
	}
	if s := e.resend; s != nil {
		e.row.Resend, e.row.Group = s.job, event.Resent(group, s.job)
		e.row.NextAttempt = s.due(e.began, e.rank)
	}
}

// number leases numbers for rows, as the writer of a relay does.
func (e *events) number() error {
	if e.next == e.end {
		err := e.pool.QueryRow(e.ctx, `SELECT nextval('cdc_relay.row_number')`).Scan(&e.next)
		if err != nil {
			return fmt.Errorf("lease row numbers: %w", err)
		}
		e.end = e.next + store.LeaseSize
	}
	e.row.N = e.next
	e.next++
	return nil
}

// tell reports progress a few times a second.
func (e *events) tell(last bool) {
	if e.opt.Progress == nil || e.rank%256 != 0 && !last {
		return
	}
	if now := time.Now(); last || now.Sub(e.shown) > 200*time.Millisecond {
		e.shown = now
		e.opt.Progress(e.rank, max(e.of, e.rank))
	}
}
