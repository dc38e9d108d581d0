// Writing events: what is stored of each, the INSERT into the table, and logical messages, which
// are in the WAL and in no table.

package outbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Write is [Write] for this outbox.
func (w *Writer) Write(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return w.insertRows(ctx, events, func(sql string, args []any) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}

// WriteSQL is [WriteSQL] for this outbox.
func (w *Writer) WriteSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	return w.insertRows(ctx, events, func(sql string, args []any) error {
		_, err := tx.ExecContext(ctx, sql, args...)
		return err
	})
}

// Emit is [Emit] with the prefix and the names of this outbox.
func (w *Writer) Emit(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return w.emitMessages(ctx, events, func(args ...any) error {
		_, err := tx.Exec(ctx, emitSQL, args...)
		return err
	})
}

// EmitSQL is [EmitSQL] with the prefix and the names of this outbox.
func (w *Writer) EmitSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	return w.emitMessages(ctx, events, func(args ...any) error {
		_, err := tx.ExecContext(ctx, emitSQL, args...)
		return err
	})
}

// row is an event that was checked. Of payload, headers and traceparent an empty text is NULL.
type row struct {
	id, aggregate, key, typ string
	payload, headers        string // JSON
	traceparent             string
}

// rowsOf makes the rows of events, all or, with ErrInvalid, none. uuids: the ids must be UUIDs.
func (w *Writer) rowsOf(ctx context.Context, events []Event, uuids bool) ([]row, error) {
	if len(events) == 0 {
		return nil, nil
	}
	trace := map[string]string{}
	if w.cfg.Trace != nil {
		w.cfg.Trace(ctx, trace)
	}
	rows := make([]row, len(events))
	for i := range events {
		var err error
		if rows[i], err = w.rowOf(&events[i], trace, uuids); err != nil {
			return nil, fmt.Errorf("%w (%d of %d): %w", ErrInvalid, i+1, len(events), err)
		}
	}
	return rows, nil
}

// rowOf makes the row of an event, or says why it can never be delivered.
func (w *Writer) rowOf(ev *Event, trace map[string]string, uuids bool) (row, error) {
	r := row{id: ev.ID, aggregate: ev.Aggregate, key: ev.Key, typ: ev.Type, traceparent: trace["traceparent"]}
	if err := w.checkParts(ev, uuids); err != nil {
		return r, err
	}
	if r.id == "" && w.cfg.Columns.ID != NoColumn {
		r.id = w.ids.newID()
	}
	var err error
	if r.payload, err = w.payloadText(ev.Payload); err != nil {
		return r, fmt.Errorf("payload: %w", err)
	}
	if r.payload == "" && r.key == "" {
		return r, errors.New("key is empty: a tombstone removes what it names")
	}
	headers := ev.Headers
	if state := trace["tracestate"]; state != "" && w.cfg.Columns.Headers != NoColumn {
		headers = maps.Clone(headers)
		if headers == nil {
			headers = map[string]string{}
		}
		headers["tracestate"] = state
	}
	if len(headers) > 0 {
		if r.headers, err = encodeJSON(headers); err != nil {
			return r, fmt.Errorf("headers: %w", err)
		}
	}
	return r, checkSize(&r, headers)
}

// payloadText is the JSON of a payload, and nothing for a Tombstone.
func (w *Writer) payloadText(payload any) (text string, err error) {
	switch p := payload.(type) {
	case nil:
		return "", errors.New("it is nil; for no body use outbox.Tombstone")
	case tombstone:
		return "", nil
	case string:
		return "", errors.New("it is a string: use json.RawMessage for text that is JSON")
	case json.RawMessage:
		text = string(p)
	case []byte:
		text = string(p)
	default:
		if text, err = encodeJSON(payload); err != nil {
			return "", err
		}
	}
	if strings.Trim(text, " \t\r\n") == "null" {
		return "", errors.New("it is the JSON null; for no body use outbox.Tombstone")
	}
	size, err := checkJSON(text)
	if err == nil && size > w.cfg.MaxPayload {
		err = fmt.Errorf("it has %d bytes as PostgreSQL may write it, the limit is %d (Config.MaxPayload)", size, w.cfg.MaxPayload)
	}
	return text, err
}

// encodeJSON is json.Marshal without its escapes for HTML.
func encodeJSON(value any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// ids makes the ids of events.
type ids struct {
	mu   sync.Mutex
	last int64
}

// newID is a new UUID of version 7. Those of one writer grow, as rows do that are inserted: its
// time is in milliseconds and 4,096th parts of one.
func (i *ids) newID() string {
	var id [16]byte
	_, _ = rand.Read(id[8:]) // never fails
	i.mu.Lock()
	ns := time.Now().UnixNano()
	i.last = max(i.last+1, ns/1e6<<12|ns%1e6<<12/1e6)
	now := uint64(i.last)
	i.mu.Unlock()
	binary.BigEndian.PutUint64(id[:], now>>12<<16|7<<12|now&0xfff)
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// What one statement carries. PostgreSQL takes 65,535 parameters and 1 GB.
const (
	batchRows  = 1000
	batchBytes = 64 << 20
)

// batches cuts rows, in their order, into what one statement carries: at least one row.
func batches(rows []row) iter.Seq[[]row] {
	return func(yield func([]row) bool) {
		for len(rows) > 0 {
			n, size := 0, 0
			for n < len(rows) && n < batchRows && (n == 0 || size < batchBytes) {
				size += len(rows[n].payload) + len(rows[n].headers) + len(rows[n].key)
				n++
			}
			if !yield(rows[:n]) {
				return
			}
			rows = rows[n:]
		}
	}
}

// insertRows writes all events, or none and returns ErrInvalid. The rows of one INSERT go to the
// WAL in the order of its list, those of several in the order of the statements. A row is in the
// WAL of the caller's transaction, so the relay sees it if that one is committed, and only then.
func (w *Writer) insertRows(ctx context.Context, events []Event, exec func(sql string, args []any) error) error {
	rows, err := w.rowsOf(ctx, events, w.idIsUUID)
	if err != nil {
		return err
	}
	for batch := range batches(rows) {
		query := w.insertOne
		if len(batch) > 1 {
			query = insertSQL(w.table, w.columns, len(batch))
		}
		args := make([]any, 0, len(batch)*len(w.columns))
		for i := range batch {
			for _, c := range w.columns {
				if value := c.value(&batch[i]); value != "" || !c.null {
					args = append(args, value)
				} else {
					args = append(args, nil)
				}
			}
		}
		if err := exec(query, args); err != nil {
			return fmt.Errorf("outbox: insert into %s: %w", w.table, err)
		}
	}
	return nil
}

// insertSQL is the INSERT of n rows. JSON is a parameter of type json, because drivers send its
// text as it is, and because PostgreSQL converts it to jsonb and to text but refuses it for bytea,
// where the backslashes of JSON would be taken for escapes and the payload changed. The other
// parameters have their column's type.
func insertSQL(table string, columns []column, n int) string {
	var sql strings.Builder
	sql.WriteString("INSERT INTO " + table)
	for i, c := range columns {
		sql.WriteString(listSeparator(i) + pgx.Identifier{*c.name}.Sanitize())
	}
	sql.WriteString(") VALUES")
	for param := range n * len(columns) {
		i := param % len(columns)
		if i == 0 && param > 0 {
			sql.WriteString("),")
		}
		sql.WriteString(listSeparator(i) + "$" + strconv.Itoa(param+1))
		if columns[i].json {
			sql.WriteString("::json")
		}
	}
	sql.WriteString(")")
	return sql.String()
}

func listSeparator(i int) string {
	if i == 0 {
		return " ("
	}
	return ", "
}

// emitSQL emits the elements of an array in its order. The first argument of
// pg_logical_emit_message makes a message part of the transaction: one that is rolled back emits
// nothing. The relay reads UTF-8, and PostgreSQL converts no message by itself. An element of type
// json is the text that was given, byte for byte.
const emitSQL = `SELECT pg_logical_emit_message(true, $1, convert_to(m::text, 'UTF8')) FROM json_array_elements($2::json) AS m`

func (w *Writer) emitMessages(ctx context.Context, events []Event, exec func(args ...any) error) error {
	if w.cfg.Columns.ID == NoColumn {
		return fmt.Errorf("%w: a logical message needs an id, and Columns.ID is NoColumn", ErrInvalid)
	}
	rows, err := w.rowsOf(ctx, events, false)
	if err != nil {
		return err
	}
	for batch := range batches(rows) {
		array := []byte{'['}
		for i := range batch {
			if i > 0 {
				array = append(array, ',')
			}
			array = w.appendMessage(array, &batch[i])
		}
		array = append(array, ']')
		if err := exec(w.cfg.Prefix, string(array)); err != nil {
			return fmt.Errorf("outbox: emit messages: %w", err)
		}
	}
	return nil
}

// appendMessage writes the message that stands for a row. Every part that has a name is a member,
// if only with null: the relay takes a member that is missing for one that is misspelt.
func (w *Writer) appendMessage(b []byte, r *row) []byte {
	b = append(b, '{')
	for i, c := range w.columns {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quoteJSON(*c.name)...)
		b = append(b, ':')
		switch value := c.value(r); {
		case value == "": // an event without a key has null
			b = append(b, "null"...)
		case c.json:
			b = append(b, value...)
		default:
			b = append(b, quoteJSON(value)...)
		}
	}
	return append(b, '}')
}

// quoteJSON is a text as JSON.
func quoteJSON(text string) string {
	quoted, err := encodeJSON(text)
	if err != nil {
		panic(err) // cannot be: a string can always be written
	}
	return quoted
}
