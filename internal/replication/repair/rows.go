// Reading the rows of all tables in one order, one by one, as they come.

package repair

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// row is a row of a table, valid until the next one of that table.
type row struct {
	table int
	// where it belongs among the rows of all tables
	key     int64
	text    string // in place of key, of an order by uuid
	command int64
	// microseconds since 1970, of the commit; timed: it is known
	time  int64
	timed bool

	values [][]byte // as text; nil: NULL, or left out
	// of a row over source.max_event_bytes: the length of each value, -1 for NULL; else nil
	lengths []int64
}

// before reports whether a row comes before another table's. Rows that are equal are in any order:
// they are of one command, or of transactions that commit at the same time.
func (a *row) before(b *row) bool {
	switch {
	case a.key != b.key:
		return a.key < b.key
	case a.text != b.text:
		return a.text < b.text
	case a.command != b.command:
		return a.command < b.command
	}
	return a.table < b.table
}

// reader reads a table. One row is in memory, and what the connections buffer.
//
// It locks the table, so the server ends its session if this process is frozen: for a minute it
// asks for nothing, or takes nothing of what it is sent. The rows of the only table are sent as
// fast as they are taken. Of several tables one may wait for its turn for hours. Its rows are asked
// for one by one, so that nothing is under way meanwhile, and the server is told that the process
// lives.
type reader struct {
	attended
	only bool // table
	// of the only table
	result *pgconn.MultiResultReader
	rows   *pgconn.ResultReader
	row    row
	text   bool // the key is a text
}

// read opens a reader of a table in a snapshot. The transaction is read-only and its connection is
// used for nothing else (tableread.Alone), and it ends with close.
func (r *run) read(ctx context.Context, i int, snapshot string, tracked bool) (*reader, error) {
	conn, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	t := &r.tables[i]
	rd := &reader{attended: attended{conn: conn, silence: r.c.SilenceLimit()}, only: len(r.tables) == 1, row: row{table: i}, text: t.by != nil && t.by.kind == "uuid" && len(r.tables) > 1}
	if err := r.open(ctx, rd, t, snapshot, tracked); err != nil {
		rd.close()
		return nil, r.readError("read rows", r.asWhereError(err))
	}
	if !rd.only {
		rd.tell(ctx)
	}
	return rd, nil
}

// selectSQL reads a table's rows in order: what they are merged by (a number, or a text), the
// number of the command in its transaction, the commit time, and then the columns. The rows of one
// transaction come in the order of their commands, those of one command as they are stored. The
// number of a command counts through subtransactions, whose rows have ids of their own.
func (r *run) selectSQL(t *table, tracked bool) string {
	key, sort := r.order.sql(t, len(r.tables) > 1)
	values, from := t.ValuesSQL(r.c.MaxEventBytes)
	list := append([]string{key, "t.cmin::text::bigint", t.commitTimeSQL(tracked)}, values...)
	return r.withSQL(t) + "SELECT " + strings.Join(list, ", ") + " FROM " + from + " WHERE " + r.unsentSQL(t) + " AND " + r.conditionSQL() +
		" ORDER BY " + sort + ", t.cmin::text::bigint, t.ctid"
}

// fixed is the number of columns in front of a table's own.
const fixed = 4

// open begins the transaction and has the rows sent.
func (r *run) open(ctx context.Context, rd *reader, t *table, snapshot string, tracked bool) error {
	tx, err := r.beginRead(ctx, rd.conn, snapshot)
	if err != nil {
		return err
	}
	if err := tableread.Lock(ctx, tx, r.pool, source.QuoteTable(t.Table.Table)); err != nil {
		return err
	}
	if err := r.checkFiles(ctx, tx, t); err != nil {
		return err
	}
	for _, sql := range []string{
		"SET LOCAL cursor_tuple_fraction = 1", // all of it is read
		"DECLARE gap NO SCROLL CURSOR FOR " + r.selectSQL(t, tracked),
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// checkFiles ends the run if a table was written again, or got or lost a partition, between the
// snapshot and our lock: the new rows are of a transaction that the snapshot does not see.
func (r *run) checkFiles(ctx context.Context, tx pgx.Tx, t *table) error {
	const sql = `SELECT coalesce(string_agg(c.oid || ':' || c.relfilenode, ',' ORDER BY c.oid), '') FROM pg_class c
		WHERE c.relkind = 'r' AND c.oid IN (SELECT $1::oid UNION SELECT inhrelid FROM ` + tableread.Heirs + ` WHERE inhparent IN (SELECT $1::oid UNION SELECT relid FROM pg_partition_tree($1::oid)))`
	var then, now string
	if err := tx.QueryRow(ctx, sql, t.OID).Scan(&then); err != nil {
		return err
	}
	if err := r.pool.QueryRow(ctx, sql, t.OID).Scan(&now); err != nil {
		return err
	}
	if then != now {
		return &event.Stop{
			Code: event.ExitFailure, Reason: "table",
			What: fmt.Sprintf("table %s was written again, or its partitions were changed, while its rows were to be read: nothing is copied", t), Fix: "run it again",
		}
	}
	return nil
}

// fetch reads the values of the next row; nil: there is none.
func (rd *reader) fetch(ctx context.Context) ([][]byte, error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if !rd.only {
		results, err := rd.conn.PgConn().Exec(ctx, "FETCH 1 FROM gap").ReadAll()
		if err != nil || len(results[0].Rows) == 0 {
			return nil, err
		}
		return results[0].Rows[0], nil
	}
	if rd.result == nil {
		rd.result = rd.conn.PgConn().Exec(ctx, "FETCH ALL FROM gap")
		if !rd.result.NextResult() {
			return nil, rd.result.Close()
		}
		rd.rows = rd.result.ResultReader()
	}
	if rd.rows.NextRow() {
		return rd.rows.Values(), nil
	}
	_, err := rd.rows.Close()
	if err == nil {
		err = rd.result.Close()
	}
	return nil, err
}

// next reads the next row; false: there is none.
func (rd *reader) next(ctx context.Context) (bool, error) {
	values, err := rd.fetch(ctx)
	if values == nil {
		return false, err
	}
	r := &rd.row
	if rd.text {
		r.text = string(values[0])
	} else if r.key, err = number(values[0]); err != nil {
		return false, err
	}
	if r.command, err = number(values[1]); err != nil {
		return false, err
	}
	if r.timed = values[2] != nil; r.timed {
		if r.time, err = number(values[2]); err != nil {
			return false, err
		}
	}
	if r.lengths, err = ReadLengths(values[3]); err != nil {
		return false, err
	}
	r.values = values[fixed:]
	return true, nil
}

func number(text []byte) (int64, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read a row: %w", err)
	}
	return n, nil
}

// merged reads several tables at once.
type merged struct {
	readers []*reader // those that have a row
	all     []*reader
	last    *reader // whose row was returned last
}

// openAll opens a reader for each table, all of one snapshot.
func (r *run) openAll(ctx context.Context, snapshot string, tracked bool) (*merged, error) {
	m := &merged{}
	for i := range r.tables {
		rd, err := r.read(ctx, i, snapshot, tracked)
		if err != nil {
			m.close()
			return nil, err
		}
		m.all = append(m.all, rd)
	}
	return m, nil
}

// begin reads the first row of each table. All are locked by now: none is written again meanwhile.
func (m *merged) begin(ctx context.Context) error {
	for _, rd := range m.all {
		there, err := rd.next(ctx)
		if err != nil {
			return err
		}
		if there {
			m.readers = append(m.readers, rd)
		}
	}
	return nil
}

// next returns the next row; nil: there is none. It is valid until the next call.
func (m *merged) next(ctx context.Context) (*row, error) {
	if m.last != nil {
		there, err := m.last.next(ctx)
		if err != nil {
			return nil, err
		}
		if !there {
			for i, rd := range m.readers {
				if rd == m.last {
					m.readers = append(m.readers[:i], m.readers[i+1:]...)
					break
				}
			}
		}
	}
	m.last = nil
	for _, rd := range m.readers {
		if m.last == nil || rd.row.before(&m.last.row) {
			m.last = rd
		}
	}
	if m.last == nil {
		return nil, nil
	}
	return &m.last.row, nil
}

func (m *merged) close() {
	for _, rd := range m.all {
		rd.close()
	}
}

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
	tables := make([]Table, len(r.tables))
	for i := range r.tables {
		tables[i] = r.tables[i].Table
	}
	var err error
	ev.decoder, err = NewDecoder(ctx, r.pool, r.c, tables)
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
		e.frame = CommitFrame(e.frame, e.open)
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
	e.frame = BeginFrame(e.frame, pos.Commit, at)
	if err := e.decoder.Decode(e.frame, &e.msg); err != nil {
		return err
	}
	e.decoder.SetIndex(pos.Index)
	e.insert = InsertFrame(e.insert, e.tables[row.table].OID, row.values, row.lengths)
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

// Frames of pgoutput, protocol version 1, for rows that were read from a table: so the decoder of
// the stream makes their events, and there is no second mapping.

// epoch2000 is 2000-01-01 in microseconds since 1970-01-01, from which frames count.
const epoch2000 = 946_684_800_000_000

// BeginFrame opens a transaction whose commit is at that position and time, in microseconds since
// 1970.
func BeginFrame(buf []byte, commit pglogrepl.LSN, time int64) []byte {
	buf = append(buf[:0], 'B')
	buf = binary.BigEndian.AppendUint64(buf, uint64(commit))
	buf = binary.BigEndian.AppendUint64(buf, uint64(time-epoch2000))
	return binary.BigEndian.AppendUint32(buf, 0) // xid
}

// CommitFrame ends it.
func CommitFrame(buf []byte, commit pglogrepl.LSN) []byte {
	buf = append(buf[:0], 'C', 0)
	buf = binary.BigEndian.AppendUint64(buf, uint64(commit))
	buf = binary.BigEndian.AppendUint64(buf, uint64(commit))
	return binary.BigEndian.AppendUint64(buf, 0)
}

// typeFrame has the base type of a domain, one of PostgreSQL's own.
func typeFrame(c decode.Column) []byte {
	buf := binary.BigEndian.AppendUint32([]byte{'Y'}, c.OwnOID)
	return append(append(append(buf, 0), c.Type.Name...), 0)
}

// relationFrame describes a table.
func relationFrame(t *Table) []byte {
	buf := binary.BigEndian.AppendUint32([]byte{'R'}, t.OID)
	buf = append(append(buf, t.Schema...), 0)
	buf = append(append(buf, t.Name...), 0, 'd')
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(t.Columns)))
	for i, c := range t.Columns {
		buf = append(buf, 0)
		buf = append(append(buf, c.Name...), 0)
		buf = binary.BigEndian.AppendUint32(buf, cmp.Or(c.OwnOID, c.TypeOID))
		buf = binary.BigEndian.AppendUint32(buf, uint32(t.typmods[i]))
	}
	return buf
}

// InsertFrame is a row of a table, its values as text. With lengths some are left out.
func InsertFrame(buf []byte, oid uint32, values [][]byte, lengths []int64) []byte {
	buf = binary.BigEndian.AppendUint32(append(buf[:0], 'I'), oid)
	buf = binary.BigEndian.AppendUint16(append(buf, 'N'), uint16(len(values)))
	for i, v := range values {
		switch {
		case v == nil && lengths != nil && lengths[i] >= 0:
			buf = binary.BigEndian.AppendUint32(append(buf, decode.LeftOutValue), uint32(lengths[i]))
			continue
		case v == nil:
			buf = append(buf, 'n')
			continue
		}
		buf = binary.BigEndian.AppendUint32(append(buf, 't'), uint32(len(v)))
		buf = append(buf, v...)
	}
	return buf
}
