// Package event defines the terms that all packages share: an event read from the WAL, its
// position, and the error that stops the relay. Every other package may import it, it imports none
// of them.
package event

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
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
	// Shape is the shape of the row's table, when the configuration wants shapes; nil: it is not
	// known. Events share it and nobody changes it: it outlives the bytes above.
	Shape *Shape

	// Origin is the row that the event was read from; zero: a message.
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

// Position identifies an event permanently: the LSN of its transaction's commit record (Begin's
// final_lsn) and the index of its frame among all I, U, D and M frames of that transaction as the
// server sent them. It is the same at every delivery, and it increases in commit order. It is not
// comparable after dump and restore.
type Position struct {
	Commit pglogrepl.LSN
	Index  uint32
}

// String is the text of the message header cdc_position: 16 hex digits, a dash, 8 decimal digits.
func (p Position) String() string {
	return string(p.Append(make([]byte, 0, 25)))
}

// Append appends the text of String to b.
func (p Position) Append(b []byte) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[(uint64(p.Commit)>>shift)&15])
	}
	b = append(b, '-')
	for pow := uint32(10_000_000); pow > p.Index && pow > 1; pow /= 10 {
		b = append(b, '0')
	}
	return strconv.AppendUint(b, uint64(p.Index), 10)
}

// Less reports whether p comes before q in commit order.
func (p Position) Less(q Position) bool { return p.Compare(q) < 0 }

// Compare is negative when p comes before q in commit order, positive when it comes after.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Commit, q.Commit), cmp.Compare(p.Index, q.Index))
}

// ParsePosition reads what String wrote.
func ParsePosition(s string) (Position, error) {
	if len(s) < 25 || s[16] != '-' {
		return Position{}, fmt.Errorf("parse position %q: want 16 hex digits, a dash and 8 decimal digits", s)
	}
	commit, err := strconv.ParseUint(s[:16], 16, 64)
	if err != nil {
		return Position{}, fmt.Errorf("parse position %q: %w", s, err)
	}
	index, err := strconv.ParseUint(s[17:], 10, 32)
	if err != nil {
		return Position{}, fmt.Errorf("parse position %q: %w", s, err)
	}
	return Position{Commit: pglogrepl.LSN(commit), Index: uint32(index)}, nil
}

// Scope defines what an ordering group is, by delivery.ordering.
type Scope uint8

// The scopes.
const (
	// key, pipelined: the events of a key and exchange or topic; an event without a key is an
	// ordering group of its own
	PerKey             Scope = iota
	PerExchangeOrTopic       // commit: all events of an exchange or topic
	Free                     // none: each event is an ordering group of its own
)

// String is the scope as cdc_relay.slots stores it.
func (s Scope) String() string {
	return [...]string{PerKey: "key", PerExchangeOrTopic: "exchange or topic", Free: "none"}[s]
}

// Resent is the ordering group of the copies that a resend makes of a group's events: they are in
// order among themselves, and newer events of their key do not wait for them. Never 0; the tables
// store it, so it must never change.
func Resent(group uint64, job int64) uint64 { return max(group^uint64(job)*0x9e3779b97f4a7c15, 1) }

// Group is the ordering group of an event that goes to an exchange or topic, never 0, and whether
// later events of the group wait for it. Lanes, sinks and the tables all have it from here; SQL
// only compares stored values. The tables store it, so it must never change.
func (s Scope) Group(ev *Event, exchangeOrTopic uint64) (group uint64, ordered bool) {
	switch s {
	case PerExchangeOrTopic:
		return max(exchangeOrTopic, 1), ev.Fault == nil
	case Free:
		// unlike Hash it can be computed from a row
		return max(uint64(ev.Position.Commit)^uint64(ev.Position.Index)<<31^exchangeOrTopic, 1), false
	default:
		return max(ev.Hash^exchangeOrTopic, 1), ev.Ordered && ev.Fault == nil
	}
}

// Shape is a table as a record depends on it. A row that waits in the retry table keeps the shape
// of its time, so that it is the same record weeks later, whatever became of the table. It is
// immutable once events have it: all events of a table share one.
type Shape struct {
	Schema  string        `json:"schema"`
	Table   string        `json:"table"`
	Columns []ColumnShape `json:"columns"` // those that an event is made of
}

// ColumnShape is one column of a table as the catalogue knows it.
type ColumnShape struct {
	Name    string   `json:"name"`
	TypeOID uint32   `json:"oid"`
	Typmod  int32    `json:"mod"` // -1: none
	NotNull bool     `json:"not_null,omitzero"`
	Default *string  `json:"default,omitzero"` // its expression as pg_get_expr prints it; nil: none
	Labels  []string `json:"labels,omitzero"`  // of an enum, in their order; nil: it is none
	// the type's name, where its OID alone would tell nobody which it is
	Type string `json:"type,omitzero"`
	// of a domain over one of PostgreSQL's own types, as the stream has it: the OID of that one
	Base uint32 `json:"-"`
}

// FirstMadeType is the least OID of a type that is not PostgreSQL's own: a domain, an enum, an
// extension's. Below 16384 are those that initdb makes, the domains of information_schema.
const FirstMadeType = 12000

// AppendShape appends a shape as JSON.
func AppendShape(b []byte, s *Shape) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers can always be written
	}
	return append(b, text...)
}

// ParseShape reads what AppendShape has written.
func ParseShape(b []byte) (*Shape, error) {
	s := new(Shape)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("not a table shape in this relay's format: %w", err)
	}
	return s, nil
}

// Watermark is how far the stream is settled.
type Watermark struct {
	// LSN may be reported to the server as flushed: every event of every transaction up to it is
	// settled. It is exactly the end LSN of a transaction, a keepalive's position received outside
	// a transaction, or where the slot stood at first.
	LSN pglogrepl.LSN
	// Own is the end LSN of the newest transaction with events of ours that LSN covers; 0 as long
	// as there is none.
	Own pglogrepl.LSN
}

// The exit codes of the relay (docs/reference.md#exit-codes).
const (
	ExitOK = 0 // clean stop
	// runtime failure: a right is missing, wal_level, no free slot, wrong password, fenced
	ExitFailure = 1
	ExitUsage   = 2 // usage or configuration
	// an operator must decide: slot lost, moved or re-created, publication or table gone
	ExitOperator = 3
	// the outbox table does not exist at first start, or the mapping does not fit it
	ExitMapping = 4
	ExitCut     = 5 // the drain was cut by the grace period
)

// Stop is an error after which the relay cannot continue by itself. It says what is wrong and how
// to fix it.
type Stop struct {
	Code int // one of the exit codes
	// one word of a closed list, for the metric cdc_relay_stopped: "slot_lost", "mapping", …
	Reason string
	What   string // one clear line that says what is wrong
	Fix    string // what the operator does or runs; "" when What says it all
	Err    error  // the cause, when there is one
	// CauseLast: the line ends with Err, which is for who asks further.
	CauseLast bool

	// Finding is, of ExitOperator, the ID by which `cdc-relay accept` takes what was found; "": it
	// cannot be accepted, or the database could not be asked. Until it is known, a Fix that can be
	// accepted has FindingID in its place.
	Finding string
	// Rows is what the finding is about when whose they are must be decided; nil: the slot itself.
	Rows *Rows
}

// FindingID stands in a Fix for the ID of the finding.
const FindingID = "<ID>"

// Rows are rows of a table, or messages of a prefix, that the relay stops at.
type Rows struct {
	Name string // schema.name of the table, or the prefix
	OID  uint32 // of the table; 0: messages
}

// Acceptable reports whether `cdc-relay accept` is a way to go on.
func (s *Stop) Acceptable() bool { return s.Finding != "" || strings.Contains(s.Fix, FindingID) }

// Error is the line that is logged once, at the top.
func (s *Stop) Error() string {
	msg := s.What
	if s.Err != nil && !s.CauseLast {
		msg += ": " + s.Err.Error()
	}
	if s.Finding != "" {
		msg += " (finding " + s.Finding + ")"
	}
	if s.Fix != "" {
		msg += "; " + s.Fix
	}
	if s.Err != nil && s.CauseLast {
		msg += "; the error: " + s.Err.Error()
	}
	return msg
}

// Unwrap is the cause.
func (s *Stop) Unwrap() error { return s.Err }
