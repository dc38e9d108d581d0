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
	*own = Record{Record: rec, scratch: sink.Reuse(own.scratch), items: own.items[:0]}
	return own
}

// Forget drops a scratch space that has grown for an unusual event. It is not that of the
// sink.Record, which calls it.
func (rec *Record) Forget() { rec.scratch = sink.Reuse(rec.scratch) }
