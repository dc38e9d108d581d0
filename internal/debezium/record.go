// The record that a row becomes.

package debezium

import (
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

// Record is what Build makes. Its bytes are its own, or the event's, and good until its next use;
// it is made once and used again.
type Record struct {
	Topic      []byte
	Key, Value []byte // nil: null
	Headers    []Header
	Time       int64 // ms since 1970
	Partition  int32 // -1: none is given, the key decides

	// Of Debezium Server's sink for RabbitMQ. A null value is its null.value.
	Exchange, RoutingKey []byte

	buf     []byte          // what was made
	scratch []byte          // what values refer to
	items   []connect.Value // of an envelope
	version int32           // of its schema
}

// Header is one header of a record.
type Header struct {
	Name  string
	Value []byte // nil: null
}

// keptBuffer bounds what a record keeps of its buffers between two uses.
const keptBuffer = 64 << 10

func (rec *Record) reset() {
	if cap(rec.buf) > keptBuffer {
		rec.buf = nil
	}
	if cap(rec.scratch) > keptBuffer {
		rec.scratch = nil
	}
	clear(rec.items[:cap(rec.items)])
	*rec = Record{Partition: -1, Headers: rec.Headers[:0], buf: rec.buf[:0], scratch: rec.scratch[:0], items: rec.items[:0]}
}

// Forget lets go of the last event's bytes.
func (rec *Record) Forget() {
	clear(rec.Headers[:cap(rec.Headers)])
	rec.reset()
}

// since is what was appended to buf since start; it cannot grow into what comes behind it.
func (rec *Record) since(start int) []byte { return rec.buf[start:len(rec.buf):len(rec.buf)] }
