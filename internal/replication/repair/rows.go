// Reading the rows of all tables in one order, one by one, as they come. Each becomes a row of the
// retry table through the decoder of the stream, which is given the frames that the server would
// have sent: so there is one mapping.

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
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// row is a row of a table, valid until the next one of that table.
type row struct {
	table int // its index in run.tables
	// Its place among the rows of all tables: key, or text in an order by uuid, then command.
	key     int64
	text    string
	command int64 // the number of the command in its transaction
	time    int64 // of the commit, in microseconds since 1970
	timed   bool  // time is known

	values [][]byte // as text; nil: NULL, or left out
	// of a row over source.max_event_bytes: the length of each value, -1 for NULL; else nil
	lengths []int64
}

// isBefore reports whether a row comes before another table's. Rows that are equal are in any
// order: they are of one command, or of transactions that commit at the same time.
func (a *row) isBefore(b *row) bool {
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

// tableReader reads a table. One row is in memory, and what the connections buffer.
//
// It locks the table, so the server ends its session if this process is frozen: for a minute it
// asks for nothing, or takes nothing of what it is sent. The rows of the only table are sent as
// fast as they are taken. Of several tables one may wait for its turn for hours. Its rows are asked
// for one by one, so that nothing is under way meanwhile, and the server is told that the process
// lives.
type tableReader struct {
	attendedConn
	only   bool                      // it is the only table
	result *pgconn.MultiResultReader // of the only table, as rows; nil: nothing was fetched yet
	rows   *pgconn.ResultReader
	row    row  // the current row
	text   bool // the key is row.text
}

// openReader opens a reader of table i in a snapshot. Its transaction is read-only, its connection
// is used for nothing else, as in sent.InOwnConnection, and both end with close.
func (r *run) openReader(ctx context.Context, i int, snapshot string, tracked bool) (*tableReader, error) {
	conn, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	t := &r.tables[i]
	rd := &tableReader{attendedConn: attendedConn{conn: conn, silence: r.c.SilenceLimit()}, only: len(r.tables) == 1, row: row{table: i}, text: t.orderBy != nil && t.orderBy.kind == "uuid" && len(r.tables) > 1}
	if err := r.openCursor(ctx, rd, t, snapshot, tracked); err != nil {
		rd.close()
		return nil, r.readError("read rows", r.asWhereError(err))
	}
	if !rd.only {
		rd.keepTelling(ctx)
	}
	return rd, nil
}

// selectSQL reads a table's rows in order: what they are merged by (a number, or a text), the
// number of the command in its transaction, the commit time, and then the columns. The rows of one
// transaction come in the order of their commands, those of one command as they are stored. The
// number of a command counts through subtransactions, whose rows have ids of their own.
func (r *run) selectSQL(t *outboxTable, tracked bool) string {
	key, sort := r.order.sortSQL(t, len(r.tables) > 1)
	values, from := t.ValuesSQL(r.c.MaxEventBytes)
	list := append([]string{key, "t.cmin::text::bigint", t.commitTimeSQL(tracked)}, values...)
	return r.withSQL(t) + "SELECT " + strings.Join(list, ", ") + " FROM " + from + " WHERE " + r.unsentSQL(t) + " AND " + r.conditionSQL() +
		" ORDER BY " + sort + ", t.cmin::text::bigint, t.ctid"
}

// leadingColumns is the number of columns that selectSQL puts before a table's own.
const leadingColumns = 4

// openCursor begins the reader's transaction, locks and checks the table, and declares the cursor.
func (r *run) openCursor(ctx context.Context, rd *tableReader, t *outboxTable, snapshot string, tracked bool) error {
	tx, err := r.beginRead(ctx, rd.conn, snapshot)
	if err != nil {
		return err
	}
	if err := sent.LockTable(ctx, tx, r.pool, source.QuoteTable(t.Table.Table)); err != nil {
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
// snapshot and our lock: the new rows are of a transaction that the snapshot does not see
// (TestRecoverOfATableThatIsRewritten).
func (r *run) checkFiles(ctx context.Context, tx pgx.Tx, t *outboxTable) error {
	const sql = `SELECT coalesce(string_agg(c.oid || ':' || c.relfilenode, ',' ORDER BY c.oid), '') FROM pg_class c
		WHERE c.relkind = 'r' AND c.oid IN (SELECT $1::oid UNION SELECT inhrelid FROM ` + sent.HeirsSQL + ` WHERE inhparent IN (SELECT $1::oid UNION SELECT relid FROM pg_partition_tree($1::oid)))`
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

// fetchValues reads the values of the next row; nil: there is none.
func (rd *tableReader) fetchValues(ctx context.Context) ([][]byte, error) {
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

// readNext reads the next row; false: there is none.
func (rd *tableReader) readNext(ctx context.Context) (bool, error) {
	values, err := rd.fetchValues(ctx)
	if values == nil {
		return false, err
	}
	r := &rd.row
	if rd.text {
		r.text = string(values[0])
	} else if r.key, err = parseNumber(values[0]); err != nil {
		return false, err
	}
	if r.command, err = parseNumber(values[1]); err != nil {
		return false, err
	}
	if r.timed = values[2] != nil; r.timed {
		if r.time, err = parseNumber(values[2]); err != nil {
			return false, err
		}
	}
	if r.lengths, err = ReadLengths(values[3]); err != nil {
		return false, err
	}
	r.values = values[leadingColumns:]
	return true, nil
}

// parseNumber reads a number that a query has returned as text: the sort key of a row, its command,
// or its time.
func parseNumber(text []byte) (int64, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read a row: %w", err)
	}
	return n, nil
}

// mergedReader merges the rows of several tables.
type mergedReader struct {
	readers []*tableReader // those that have a current row
	all     []*tableReader // by table
	last    *tableReader   // whose row was returned last; nil: none was
}

// openAll opens a reader for each table, all of one snapshot.
func (r *run) openAll(ctx context.Context, snapshot string, tracked bool) (*mergedReader, error) {
	m := &mergedReader{}
	for i := range r.tables {
		rd, err := r.openReader(ctx, i, snapshot, tracked)
		if err != nil {
			m.close()
			return nil, err
		}
		m.all = append(m.all, rd)
	}
	return m, nil
}

// readFirst reads the first row of each table. All are locked by now: none is written again
// meanwhile.
func (m *mergedReader) readFirst(ctx context.Context) error {
	for _, rd := range m.all {
		there, err := rd.readNext(ctx)
		if err != nil {
			return err
		}
		if there {
			m.readers = append(m.readers, rd)
		}
	}
	return nil
}

// nextRow returns the next row; nil: there is none. It is valid until the next call.
func (m *mergedReader) nextRow(ctx context.Context) (*row, error) {
	if m.last != nil {
		there, err := m.last.readNext(ctx)
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
		if m.last == nil || rd.row.isBefore(&m.last.row) {
			m.last = rd
		}
	}
	if m.last == nil {
		return nil, nil
	}
	return &m.last.row, nil
}

func (m *mergedReader) close() {
	for _, rd := range m.all {
		rd.close()
	}
}

// rowMaker makes rows of the retry table from rows of the outbox, each as the stream would have
// made its event, and the writer would have deferred it.
type rowMaker struct {
	*run
	ctx         context.Context
	rows        *mergedReader
	decoder     *decode.Decoder
	incarnation int64 // of the copies
	positions   positions
	rank        int64 // of the next row, from 0
	// numbers of rows that are leased and not used: from next, before end
	nextNumber, leasedEnd int64
	totalRows             int64     // how many rows were counted
	shownAt               time.Time // when progress was reported last

	// the commit of the transaction that is open in the decoder; 0: none is
	openCommit pglogrepl.LSN
	msg        decode.Message
	frame      []byte    // of a begin or a commit, reused
	insert     []byte    // the frame of the current row, reused
	row        store.Row // the current row of the retry table
}

// newEvents makes the decoder and describes the tables to it.
func (r *run) newEvents(ctx context.Context, rows *mergedReader, incarnation int64, at positions) (*rowMaker, error) {
	ev := &rowMaker{run: r, ctx: ctx, rows: rows, incarnation: incarnation, positions: at, totalRows: r.report.counted}
	tables := make([]Table, len(r.tables))
	for i := range r.tables {
		tables[i] = r.tables[i].Table
	}
	var err error
	ev.decoder, err = NewDecoder(ctx, r.pool, r.c, tables)
	return ev, err
}

// nextRow makes the next row for the retry table; io.EOF: there is none. It is valid until the next
// call.
func (e *rowMaker) nextRow() (*store.Row, error) {
	if err := e.ctx.Err(); err != nil {
		return nil, err
	}
	row, err := e.rows.nextRow(e.ctx)
	if err != nil {
		return nil, e.readError("read rows", e.asWhereError(err))
	}
	if row == nil {
		e.reportProgress(true)
		return nil, cmp.Or(e.checkTables(), io.EOF)
	}
	if err := e.decodeRow(row); err != nil {
		return nil, err
	}
	if err := e.leaseNumber(); err != nil {
		return nil, err
	}
	e.rank++
	e.reportProgress(false)
	return &e.row, nil
}

// checkTables looks at the tables again, while their locks are still held (sent.ReadTable).
func (e *rowMaker) checkTables() error {
	for _, t := range e.tables {
		if err := sent.CheckTable(e.ctx, e.pool, source.QuoteTable(t.Table.Table)); err != nil {
			return e.readError("read rows", err)
		}
	}
	return nil
}

// decodeRow makes the event of a row, which is a transaction of its own to the decoder.
func (e *rowMaker) decodeRow(row *row) error {
	if e.openCommit != 0 { // the row before is no longer needed
		e.frame = CommitFrame(e.frame, e.openCommit)
		if err := e.decoder.Decode(e.frame, &e.msg); err != nil {
			return err
		}
	}
	pos, err := e.positions.position(e.rank)
	if err != nil {
		return err
	}
	e.openCommit = pos.Commit
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
	e.placeEvent(&ev)
	return nil
}

// placeEvent fills in where the event goes: what a lane would have found out when it deferred it.
//
// A topic's partitions are known only to a relay that is connected. Then the row has no destination
// (Dest 0, which is none's). That changes nothing but how the row is found: a lane that reads it
// asks the sink again where it belongs (feeder.foundOf of package retry), and a walk leaves out
// rows of a paused destination by what is stored here, so it reads those without one in any case.
// Rows whose topic has got more partitions since they were deferred are in the same position.
func (e *rowMaker) placeEvent(ev *event.Event) {
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
		e.row.NextAttempt = s.dueAt(e.began, e.rank)
	}
}

// leaseNumber gives the row a number. They are leased, as the writer of a relay does.
func (e *rowMaker) leaseNumber() error {
	if e.nextNumber == e.leasedEnd {
		err := e.pool.QueryRow(e.ctx, `SELECT nextval('cdc_relay.row_number')`).Scan(&e.nextNumber)
		if err != nil {
			return fmt.Errorf("lease row numbers: %w", err)
		}
		e.leasedEnd = e.nextNumber + store.LeaseSize
	}
	e.row.N = e.nextNumber
	e.nextNumber++
	return nil
}

// reportProgress reports progress a few times a second.
func (e *rowMaker) reportProgress(last bool) {
	if e.opt.Progress == nil || e.rank%256 != 0 && !last {
		return
	}
	if now := time.Now(); last || now.Sub(e.shownAt) > 200*time.Millisecond {
		e.shownAt = now
		e.opt.Progress(e.rank, max(e.totalRows, e.rank))
	}
}

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

// CommitFrame ends the transaction whose commit is at that position.
func CommitFrame(buf []byte, commit pglogrepl.LSN) []byte {
	buf = append(buf[:0], 'C', 0)
	buf = binary.BigEndian.AppendUint64(buf, uint64(commit))
	buf = binary.BigEndian.AppendUint64(buf, uint64(commit))
	return binary.BigEndian.AppendUint64(buf, 0)
}

// typeFrame describes the domain that is a column's type: its base type, one of PostgreSQL's own.
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
