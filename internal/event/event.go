// Package event defines the terms that all packages share: an event read from the WAL, its
// position, and the error that stops the relay. Every other package may import it, it imports none
// of them.
package event

import (
	"time"
)

// PayloadKind says what the payload column is, and so which content type the message carries.
type PayloadKind uint8

// The payload column types the relay accepts.
const (
	JSON   PayloadKind = iota // json, jsonb: application/json
	Text                      // text, varchar: text/plain
	Binary                    // bytea, already decoded from hex: application/octet-stream
)

// ContentType is the MIME type of a payload of this kind.
func (k PayloadKind) ContentType() string {
	switch k {
	case Text:
		return "text/plain"
	case Binary:
		return "application/octet-stream"
	default:
		return "application/json"
	}
}

// Event is one outbox row of a committed transaction, or one logical message of it that stands for
// a row.
//
// A nil byte slice is SQL NULL (or a column that is not mapped), an empty one is the empty string.
// The bytes belong to the caller that passed the event: those of package decode are valid until its
// next call, those given to a sink until its Publish call returns. Nobody writes to them.
type Event struct {
	Position   Position
	CommitTime time.Time // of the transaction, from Begin; microseconds
	Time       time.Time // the timestamp column when one is mapped, else CommitTime

	ID        []byte // message id; never nil unless Fault or LeftOut is set
	Aggregate []byte
	Key       []byte
	Type      []byte

	Payload     []byte // untouched bytes of the column; nil for NULL
	PayloadKind PayloadKind

	Traceparent []byte
	Headers     []byte   // the headers column: the text of a jsonb value
	Columns     [][]byte // the extra columns of decode.Config.Columns, in that order
	// Shape is that of the row's table, when the configuration wants shapes; nil: it is not known.
	// Events share it and nobody changes it: it outlives the bytes above.
	Shape *Shape

	// Origin is the row that the event was read from; zero: a message, or an event that was
	// deferred by an earlier version.
	Origin Origin

	// Route is the destination of an event that was routed before; nil: the sink's templates
	// decide. Rows of the retry table have one: a deferred event keeps the destination that it had
	// when it was deferred, even if the configuration has changed.
	Route *Route
	// Replay is set on a dead letter that is published again, and on a row that an operator has
	// sent again: its message then carries the header cdc_replay.
	Replay bool
	// Copy is set on the mirror's copy of a dead letter: a report about an event, which is part of
	// no trace.
	Copy bool
	// Ordered is true when the event has an ordering key, one that is neither NULL nor empty, and
	// no Fault.
	Ordered bool

	// Hash is a 64-bit digest of (aggregate, key) when Ordered, by KeyHash, else of Position. Equal
	// keys have equal hashes; two keys with the same hash are only kept in order with each other.
	Hash uint64

	// LeftOut is set on an event that lacks values of its row, because the row is larger than
	// source.max_event_bytes. It has its place in the order as any other, but is refused in place
	// of being sent, and becomes a dead letter with what it has. nil: nothing is left out.
	LeftOut *LeftOut

	// Fault says why the row cannot be relayed as configured (its id is NULL, say). Such an event
	// is never sent and never dropped: it becomes a dead letter at once, with Raw. What could be
	// decoded of it is there.
	Fault error
	// Raw is the whole row, in UTF-8, only with Fault. Of a table's row it is a JSON object: each
	// column's name and its text, null for NULL; a value that cannot be converted to UTF-8 stands
	// in hexadecimal under "name:hex", as the database has it. Of a logical message it is the
	// message's text, or {"message:hex": ...} when that is not UTF-8.
	Raw []byte
}

// Origin names the row of an event for the sent set (package sent), together with its id.
type Origin struct {
	// OID of the table as the stream names it; 0: not known, or a copy that an operator sends
	// elsewhere, which does not make the row one that was sent
	Relation uint32
	Tx       uint64 // the transaction that wrote the row, from its own column; 0: not known
}

// Route is a destination by its names. RabbitMQ: exchange and routing key. Kafka: topic, and no
// routing key. nil is a template that had no value.
type Route struct {
	Name       []byte // exchange or topic
	RoutingKey []byte
}

// LeftOut tells what an event lacks. It is immutable: copies of an event share it.
type LeftOut struct {
	Table string // the outbox table that has the row, as schema.name; "": it was a logical message
	Bytes int64  // of all values of the row
}

// Size is the number of bytes of the row that the event holds.
func (e *Event) Size() int {
	n := len(e.ID) + len(e.Aggregate) + len(e.Key) + len(e.Type) + len(e.Payload) + len(e.Traceparent) + len(e.Headers) + len(e.Raw)
	for _, c := range e.Columns {
		n += len(c)
	}
	return n
}
