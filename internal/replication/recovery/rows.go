// Reading the rows of all tables in one order, one by one, as they come.

package recovery

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/tablerows"
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
	rd := &reader{attended: attended{conn: conn}, only: len(r.tables) == 1, row: row{table: i}, text: t.by != nil && t.by.kind == "uuid" && len(r.tables) > 1}
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

// open begins the transaction and has the rows sent. They come with their text as the database
// stores it, as in the stream: the server fails at a row that it cannot convert.
func (r *run) open(ctx context.Context, rd *reader, t *table, snapshot string, tracked bool) error {
	tx, err := beginRead(ctx, rd.conn, snapshot)
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
	if rd.conn.PgConn().ParameterStatus("server_encoding") != "UTF8" {
		if _, err := tx.Exec(ctx, "SET LOCAL client_encoding = 'SQL_ASCII'"); err != nil {
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
	if r.lengths, err = tablerows.ReadLengths(values[3]); err != nil {
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
