// Package tablerows makes events of rows that are read from an outbox table, as the stream would
// have made them: it writes the frames of pgoutput, and the decoder of the stream reads them. So
// there is no second mapping. Those who copy a table use it (package recovery), and the replay of
// an event whose values are in the table alone.
package tablerows

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Table is an outbox table: its columns as the stream would send them.
type Table struct {
	decode.Table
	Columns []decode.Column
	// what a query reads: without heirs, whose rows the stream names by themselves
	From    string
	typmods []int32
	// of the catalogue, as the database stores them, for the Relation frame
	schema, name []byte
	names        [][]byte
}

// Describe reads what a table is.
func Describe(ctx context.Context, pool *pgxpool.Pool, c *source.Config, of decode.Table) (t Table, err error) {
	t.Table = of
	if t.Columns, t.typmods, err = publication.Columns(ctx, pool, c, of); err != nil {
		return t, err
	}
	names := make([]string, len(t.Columns))
	for i, col := range t.Columns {
		names[i] = col.Name
	}
	var partitioned bool
	err = pool.QueryRow(ctx, `SELECT coalesce((SELECT relkind = 'p' FROM pg_class WHERE oid = $4), false), convert_to($1, getdatabaseencoding()), convert_to($2, getdatabaseencoding()),
		array(SELECT convert_to(n, getdatabaseencoding()) FROM unnest($3::text[]) WITH ORDINALITY u(n, i) ORDER BY i)`, of.Schema, of.Name, names, of.OID).
		Scan(&partitioned, &t.schema, &t.name, &t.names)
	if err != nil {
		return t, fmt.Errorf("read the columns of %s: %w", of, err)
	}
	if t.From = source.QuoteTable(of); !partitioned {
		t.From = "ONLY " + t.From
	}
	return t, nil
}

// NewDecoder makes a decoder of the stream, and describes the tables to it.
func NewDecoder(ctx context.Context, pool *pgxpool.Pool, c *source.Config, of []Table) (*decode.Decoder, error) {
	encoding, err := source.EncodingOf(ctx, pool)
	if err != nil {
		return nil, err
	}
	keys, err := source.Keys(ctx, pool, c.Slot)
	if err != nil {
		return nil, err
	}
	tables := make([]decode.Table, len(of))
	for i, t := range of {
		tables[i] = t.Table
	}
	d := decode.New(decode.Config{Tables: tables, Columns: c.Columns, Shapes: c.Shapes, LeftOut: c.MaxEventBytes > 0, Copied: true, Encoding: encoding, Keys: keys})
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
		if err := publication.CompleteShape(ctx, pool, c.Types, msg.Shape, t.OID); err != nil {
			return nil, err
		}
		if err := d.Shaped(t.OID, msg.Shape); err != nil {
			return nil, err
		}
	}
	return d, nil
}
