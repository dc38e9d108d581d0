// A decoder of the stream for rows of tables.

package recovery

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// newDecoder makes a decoder, and describes the tables to it.
func (r *run) newDecoder(ctx context.Context, of []table) (*decode.Decoder, error) {
	encoding, err := source.EncodingOf(ctx, r.pool)
	if err != nil {
		return nil, err
	}
	tables := make([]decode.Table, len(of))
	for i, t := range of {
		tables[i] = t.Table
	}
	d := decode.New(decode.Config{Tables: tables, Columns: r.c.Columns, Shapes: r.c.Shapes, LeftOut: r.c.MaxEventBytes > 0, Encoding: encoding})
	var msg decode.Message
	for i := range of {
		t := &of[i]
		if err := d.Decode(relationFrame(t), &msg); err != nil {
			return nil, err
		}
		if msg.Shape == nil {
			continue
		}
		if err := publication.CompleteShape(ctx, r.pool, msg.Shape, t.OID); err != nil {
			return nil, err
		}
		if err := d.Shaped(t.OID, msg.Shape); err != nil {
			return nil, err
		}
	}
	return d, nil
}
