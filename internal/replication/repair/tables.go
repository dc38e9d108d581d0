// Events of rows that are read from an outbox table, as the stream would have made them: frames of
// pgoutput are written, and the decoder of the stream reads them. So there is no second mapping.
// Those who copy a table need it, and the replay of an event whose values are in the table alone.

package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// Table is an outbox table: its columns as the stream would send them.
type Table struct {
	decode.Table
	Columns []decode.Column
	// what a query reads: without heirs, whose rows the stream names by themselves
	From    string
	typmods []int32
}

// DescribeTable reads the columns of a table, and how it is read.
func DescribeTable(ctx context.Context, pool *pgxpool.Pool, c *source.Config, of decode.Table) (t Table, err error) {
	t.Table = of
	if t.Columns, t.typmods, err = schema.TableColumns(ctx, pool, c, of); err != nil {
		return t, err
	}
	var partitioned bool
	err = pool.QueryRow(ctx, `SELECT coalesce((SELECT relkind = 'p' FROM pg_class WHERE oid = $1), false)`, of.OID).Scan(&partitioned)
	if err != nil {
		return t, fmt.Errorf("read the kind of %s: %w", of, err)
	}
	if t.From = source.QuoteTable(of); !partitioned {
		t.From = "ONLY " + t.From
	}
	return t, nil
}

// NewDecoder makes a decoder of the stream, and describes the tables to it.
func NewDecoder(ctx context.Context, pool *pgxpool.Pool, c *source.Config, of []Table) (*decode.Decoder, error) {
	keys, err := source.ReadKeyHash(ctx, pool, c.Slot)
	if err != nil {
		return nil, err
	}
	tables := make([]decode.Table, len(of))
	for i, t := range of {
		tables[i] = t.Table
	}
	d := decode.New(decode.Config{Tables: tables, Columns: c.Columns, Shapes: c.Shapes, LeftOut: c.MaxEventBytes > 0, Copied: true, Keys: keys})
	var msg decode.Message
	for i := range of {
		t := &of[i]
		for _, c := range t.Columns {
			if c.OwnOID == 0 { // no domain
				continue
			}
			if err := d.Decode(typeFrame(c), &msg); err != nil {
				return nil, err
			}
		}
		if err := d.Decode(relationFrame(t), &msg); err != nil {
			return nil, err
		}
		if msg.Shape == nil {
			continue
		}
		if err := schema.CompleteShape(ctx, pool, c.Types, msg.Shape, t.OID); err != nil {
			return nil, err
		}
		if err := d.Shaped(t.OID, msg.Shape); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Part are the columns that a part of an event may come from: of a row it is the first that is not
// NULL. Empty: the table has none of them.
type Part []PartColumn

// PartColumn is one column of a Part.
type PartColumn struct {
	Name string
	Kind string // its type in SQL, of a domain the base type
	// values can be compared as those of the type, so that an index is used; else as text
	equals bool
}

// ForeignTypeError is the error for a column whose type is not one of PostgreSQL's own: to compare
// its values would run functions of its owner.
type ForeignTypeError struct {
	Column string
	Table  decode.Table
}

func (e *ForeignTypeError) Error() string {
	return fmt.Sprintf("the type of column %s of %s is not one of PostgreSQL's own", e.Column, e.Table)
}

// FindPart finds the columns with these names that a table has, in their order.
func FindPart(ctx context.Context, pool *pgxpool.Pool, t decode.Table, names []string) (p Part, err error) {
	rows, err := pool.Query(ctx, `SELECT attname::text, 'pg_catalog.' || quote_ident(y.typname), y.typnamespace = 'pg_catalog'::regnamespace,
			EXISTS (SELECT FROM pg_operator o WHERE o.oprname = '=' AND o.oprleft = y.oid AND o.oprright = y.oid) OR y.typname = 'varchar' AS equals
		FROM pg_attribute JOIN pg_type y ON y.oid = `+sent.BaseTypeSQL("atttypid")+`
		WHERE attrelid = $1 AND attnum > 0 AND attname = ANY ($2::text[]) AND NOT attisdropped
		ORDER BY array_position($2::text[], attname::text)`, t.OID, names)
	if err != nil {
		return nil, fmt.Errorf("read the columns of %s: %w", t, err)
	}
	var c PartColumn
	var own bool
	_, err = pgx.ForEachRow(rows, []any{&c.Name, &c.Kind, &own, &c.equals}, func() error {
		if !own {
			return &ForeignTypeError{c.Name, t}
		}
		p = append(p, c)
		return nil
	})
	return p, err
}

// EqualsSQL is the condition that the part of a row of alias t is a text.
func (p Part) EqualsSQL(text string) string {
	value := source.QuoteText(text)
	var any, first []string
	for _, c := range p {
		name := "t." + source.QuoteName(c.Name)
		if c.equals {
			any = append(any, name+"::"+c.Kind+" = "+value+"::text::"+c.Kind)
		} else {
			any = append(any, name+"::text = "+value)
		}
		first = append(first, "CASE WHEN "+name+" IS NOT NULL THEN "+sent.TextSQL(name, c.Kind == "pg_catalog.bpchar")+" END")
	}
	sql := "(" + strings.Join(any, " OR ") + ")"
	if len(p) > 1 { // one of them may have the text, and another one comes before it
		sql += " AND coalesce(" + strings.Join(first, ", ") + ") = " + value
	}
	return sql
}

// CheckText returns the server's error for a text that is no value of the columns' types.
func (p Part) CheckText(ctx context.Context, pool *pgxpool.Pool, text string) error {
	for _, c := range p {
		if !c.equals {
			continue
		}
		var fits bool
		if err := pool.QueryRow(ctx, "SELECT "+source.QuoteText(text)+"::text::"+c.Kind+" IS NOT NULL").Scan(&fits); err != nil {
			return err
		}
	}
	return nil
}

// ValuesSQL returns the lengths of the values where some are left out, and then the values, and
// what they are selected from.
//
// A row over the limit, which is source.max_event_bytes (0: none), is not sent to us: the server
// measures its values, and keeps back those that the stream's reader would leave out (source). It
// measures them as they would be sent, by their type's output function. A cast to text may be a
// function of the table's owner, and so may be what a type of his is compared by: neither is used.
func (t *Table) ValuesSQL(limit int64) (values []string, from string) {
	from, lengths := t.From+" t", []string{}
	values = append(values, "NULL::text")
	for i, c := range t.Columns {
		name := "t." + source.QuoteName(c.Name)
		lengths = append(lengths, "CASE num_nonnulls("+name+") WHEN 1 THEN octet_length(convert_to(format('%s', "+name+"), 'UTF8')) END")
		if limit > 0 {
			name = fmt.Sprintf("CASE WHEN l.cdc_relay_large AND l.cdc_relay_lengths[%d] > %d THEN NULL ELSE %s END", i+1, source.KeepOfLarge, name)
		}
		values = append(values, name)
	}
	if limit == 0 {
		return values, from
	}
	values[0] = "CASE WHEN l.cdc_relay_large THEN l.cdc_relay_lengths::text END"
	// OFFSET 0: each value is measured once. The frame of an insert has 8 bytes, and 5 for each
	// value or 1 for NULL.
	return values, from + fmt.Sprintf(` CROSS JOIN LATERAL (SELECT a.cdc_relay_lengths, 8 + (SELECT sum(coalesce(5 + x, 1)) FROM unnest(a.cdc_relay_lengths) x) > %d AS cdc_relay_large
		FROM (SELECT ARRAY[%s]::bigint[] AS cdc_relay_lengths OFFSET 0) a OFFSET 0) l`, limit, strings.Join(lengths, ", "))
}

// ReadLengths reads an array of numbers; nil: there is none.
func ReadLengths(text []byte) (lengths []int64, err error) {
	if text == nil {
		return nil, nil
	}
	for n := range strings.SplitSeq(strings.Trim(string(text), "{}"), ",") {
		length := int64(-1)
		if n != "NULL" {
			if length, err = strconv.ParseInt(n, 10, 64); err != nil {
				return nil, fmt.Errorf("read the lengths of a row: %w", err)
			}
		}
		lengths = append(lengths, length)
	}
	return lengths, nil
}

// ReadRow reads the row of an event of which values are left out, as it is in its table now, and
// makes the whole event of it, with the position and commit time of the former. The row is in
// memory two to four times meanwhile: that is what an operator has asked for.
//
// why: there is no such event, or it cannot be told which one it is, until somebody changes
// something. An error may pass.
func ReadRow(ctx context.Context, pool *pgxpool.Pool, c source.Config, of *event.Event) (ev *event.Event, why string, err error) {
	w := leftOutRow{pool: pool, c: &c, of: of}
	ctx, cancel := context.WithTimeout(ctx, w.statementTimeout()+source.AnswerTimeout)
	defer cancel()
	err = w.readEvent(ctx)
	var no cannotRead
	var stop *event.Stop
	switch state := source.SQLState(err); {
	case err == nil:
		return w.event, "", nil
	case errors.As(err, &no):
		return nil, string(no), nil
	case errors.As(err, &stop):
		return nil, stop.What, nil
	case state == "42501":
		return nil, fmt.Sprintf("the relay may not read %s: GRANT SELECT ON %s TO its role, and replay it again", of.LeftOut.Table, w.quoted()), nil
	case state == "" || strings.HasPrefix(state, "08") || strings.HasPrefix(state, "53") || strings.HasPrefix(state, "57P"):
		return nil, "", fmt.Errorf("read a row of %s: %w", of.LeftOut.Table, err)
	}
	return nil, fmt.Sprintf("its row cannot be read from %s: %s", of.LeftOut.Table, source.OneLine(err)), nil
}

// cannotRead is why an event cannot be made of a row.
type cannotRead string

func (c cannotRead) Error() string { return string(c) }

// leftOutRow is the row of an event of which values are left out.
type leftOutRow struct {
	pool   *pgxpool.Pool
	c      *source.Config
	of     *event.Event // the event
	table  Table        // set by findTable
	insert []byte       // the frame of the row; nil: it was not read
	event  *event.Event // the whole event; nil: it was not made
}

func (w *leftOutRow) quoted() string { return source.QuoteTable(w.table.Table) }

// statementTimeout is the statement_timeout for the row, by its size, as for large rows of the
// retry table: 15 s, and a second for each 5 MiB.
func (w *leftOutRow) statementTimeout() time.Duration {
	return 15*time.Second + time.Duration(w.of.LeftOut.Bytes/(5<<20))*time.Second
}

// readEvent finds the table and the row, and makes the event.
func (w *leftOutRow) readEvent(ctx context.Context) error {
	switch {
	case w.of.LeftOut.Table == "":
		return cannotRead("it was a logical message, which is in no table: emit it again, and discard this dead letter")
	case len(w.of.ID) == 0:
		return cannotRead("its id is not known (NULL, or itself too large): insert the row again, and discard this dead letter")
	}
	if err := w.findTable(ctx); err != nil {
		return err
	}
	condition, err := w.conditionSQL(ctx)
	if err != nil {
		return err
	}
	err = sent.ReadTable(ctx, w.pool, w.quoted(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = "+strconv.FormatInt(w.statementTimeout().Milliseconds(), 10)); err != nil {
			return err
		}
		var found int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM "+w.quoted()+" t WHERE "+condition+" LIMIT 2) x").Scan(&found); err != nil {
			return err
		}
		switch found {
		case 0:
			return w.goneError()
		case 1:
			return w.fetchRow(ctx, tx, condition)
		}
		return cannotRead(fmt.Sprintf("several rows of %s have this id: it cannot be told which one it is", w.of.LeftOut.Table))
	})
	if refusal, refused := sent.IsRefusal(err); refused {
		return cannotRead(refusal.Error() + ": " + refusal.Fix)
	}
	if err != nil {
		return err
	}
	return w.decodeEvent(ctx)
}

// goneError is the error for a row that was deleted.
func (w *leftOutRow) goneError() error {
	return cannotRead(fmt.Sprintf("the row is no longer in %s: insert it again, and discard this dead letter", w.of.LeftOut.Table))
}

// findTable finds the table among the configured ones.
func (w *leftOutRow) findTable(ctx context.Context) error {
	for _, t := range w.c.Tables {
		if t.String() != w.of.LeftOut.Table {
			continue
		}
		one := *w.c
		one.Tables = []decode.Table{t}
		w.table.Table = t
		var err error
		if one.Tables, err = schema.FindTables(ctx, w.pool, &one, false); err != nil {
			return err
		}
		w.table, err = DescribeTable(ctx, w.pool, w.c, one.Tables[0])
		return err
	}
	return cannotRead(fmt.Sprintf("table %s is not in source.tables: its row cannot be read", w.of.LeftOut.Table))
}

// conditionSQL is the condition that a row has the id, under any of the names that an id may have.
func (w *leftOutRow) conditionSQL(ctx context.Context) (string, error) {
	part, err := FindPart(ctx, w.pool, w.table.Table, w.table.Mapping.ID.Any)
	if own := (*ForeignTypeError)(nil); errors.As(err, &own) {
		return "", cannotRead("its row is not searched: " + own.Error())
	}
	return part.EqualsSQL(string(w.of.ID)), err
}

// fetchRow reads the row, and makes a frame of it.
func (w *leftOutRow) fetchRow(ctx context.Context, tx pgx.Tx, condition string) error {
	list := make([]string, len(w.table.Columns))
	for i, c := range w.table.Columns {
		list[i] = "t." + source.QuoteName(c.Name)
	}
	declare := "DECLARE left_out NO SCROLL CURSOR FOR SELECT " + strings.Join(list, ", ") + " FROM " + w.quoted() + " t WHERE " + condition + " LIMIT 1"
	if _, err := tx.Exec(ctx, declare); err != nil {
		return err
	}
	result := tx.Conn().PgConn().Exec(ctx, "FETCH ALL FROM left_out")
	if result.NextResult() {
		if rows := result.ResultReader(); rows.NextRow() {
			w.insert = InsertFrame(nil, w.table.OID, rows.Values(), nil)
		}
	}
	if err := result.Close(); err != nil {
		return err
	}
	if w.insert == nil { // it was deleted after it was counted
		return w.goneError()
	}
	return nil
}

// decodeEvent makes the event from the frame.
func (w *leftOutRow) decodeEvent(ctx context.Context) error {
	decoder, err := NewDecoder(ctx, w.pool, w.c, []Table{w.table})
	if err != nil {
		return err
	}
	var msg decode.Message
	pos := w.of.Position
	if err := decoder.Decode(BeginFrame(nil, pos.Commit, w.of.CommitTime.UnixMicro()), &msg); err != nil {
		return err
	}
	decoder.SetIndex(pos.Index)
	if err := decoder.Decode(w.insert, &msg); err != nil {
		return err
	}
	switch {
	case msg.Kind != decode.Row:
		return fmt.Errorf("a row of %s was not taken for an event", w.table)
	case msg.Event.Fault != nil:
		return cannotRead("its row cannot be read as an event: " + msg.Event.Fault.Error())
	case !bytes.Equal(msg.Event.ID, w.of.ID):
		return w.goneError()
	}
	w.event = msg.Event // the decoder's, which nobody else has
	return nil
}
