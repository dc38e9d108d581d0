// The record that a row becomes, while it is made.

package debezium

import (
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Record is a record under way: what is made, and the scratch space that it keeps as its Own.
type Record struct {
	*sink.Record

	scratch []byte          // what values refer to
	items   []connect.Value // of an envelope
	version int32           // of its schema
}

// recordOf is rec, which is empty, with the scratch space that it has from its last use.
func recordOf(rec *sink.Record) *Record {
	own, _ := rec.Own.(*Record)
	if own == nil {
		own = new(Record)
		rec.Own = own
	}
	if cap(own.scratch) > keptBuffer {
		own.scratch = nil
	}
	*own = Record{Record: rec, scratch: own.scratch[:0], items: own.items[:0]}
	return own
}

// keptBuffer bounds what a record keeps of its scratch space between two uses.
const keptBuffer = 64 << 10
