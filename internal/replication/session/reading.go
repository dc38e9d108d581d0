// What the reader keeps between two messages, and how it completes the shape of a table from the
// catalogue.

package session

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
)

// reading is the reader's own state between two messages.
type reading struct {
	*Session
	// one per session, not per message: a context per row costs more than the row
	ctx context.Context
	msg decode.Message
	xid uint32 // of the transaction that is read
}

// shaped completes the shape of a table that the stream has described, and gives it back to the
// decoder. NOT NULL and defaults are those that the columns have now, as with Debezium, which may
// be newer than the rows: a column that no longer exists counts as optional and without default.
// Types are resolved by their OID in the frame, so a column that was altered, renamed or dropped
// since does not change earlier rows.
func (r *reading) shaped(shape *event.Shape, oid uint32) error {
	r.t.Line.Wake(true) // what was read need not wait for the catalogue
	if err := publication.CompleteShape(r.ctx, r.Pool, shape, oid); err != nil {
		if r.ctx.Err() != nil {
			return errReadCut
		}
		return err
	}
	return r.decoder.Shaped(oid, shape)
}
