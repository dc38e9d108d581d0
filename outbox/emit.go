// Writing logical messages, which are in the WAL and in no table.

package outbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Emit is [Emit] with the prefix and the names of this outbox.
func (w *Writer) Emit(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return w.emit(ctx, events, func(args ...any) error {
		_, err := tx.Exec(ctx, emitSQL, args...)
		return err
	})
}

// EmitSQL is [EmitSQL] with the prefix and the names of this outbox.
func (w *Writer) EmitSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	return w.emit(ctx, events, func(args ...any) error {
		_, err := tx.ExecContext(ctx, emitSQL, args...)
		return err
	})
}

// emitSQL emits the elements of an array in its order. The first argument of
// pg_logical_emit_message makes a message part of the transaction: one that is rolled back emits
// nothing. The relay reads UTF-8, and PostgreSQL converts no message by itself. An element of type
// json is the text that was given, byte for byte.
const emitSQL = `SELECT pg_logical_emit_message(true, $1, convert_to(m::text, 'UTF8')) FROM json_array_elements($2::json) AS m`

func (w *Writer) emit(ctx context.Context, events []Event, exec func(args ...any) error) error {
	if w.cfg.Columns.ID == NoColumn {
		return fmt.Errorf("%w: a logical message needs an id, and Columns.ID is NoColumn", ErrInvalid)
	}
	rows, err := w.rows(ctx, events, false)
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
	c := &w.cfg.Columns
	b = append(b, '{')
	for i, m := range []struct{ name, json string }{
		{c.ID, quote(r.id)},
		{c.Aggregate, quote(r.aggregate)},
		{c.Key, quote(r.key)},
		{c.Type, quote(r.typ)},
		{c.Payload, r.payload},
		{c.Headers, r.headers},
		{c.Traceparent, quote(r.traceparent)},
	} {
		if m.name == NoColumn {
			continue
		}
		if m.json == "" {
			m.json = "null"
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quote(m.name)...)
		b = append(b, ':')
		b = append(b, m.json...)
	}
	return append(b, '}')
}

// quote is a text as JSON, and nothing for an empty one: an event without a key has null.
func quote(text string) string {
	if text == "" {
		return ""
	}
	quoted, err := encodeJSON(text)
	if err != nil {
		panic(err) // cannot be: a string can always be written
	}
	return quoted
}
