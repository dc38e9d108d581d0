// The contract with what makes a record of a row: the relay's own format, Debezium's profiles. What
// the plain encoders of brokers with headers have in common. Events of which much is made are made
// into messages one at a time.

package sink

import (
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Encoder makes records of rows. A sink is given one when it is opened and does not know which. The
// plain format of each sink is one, and so is a Debezium profile. It is safe for concurrent use,
// and pure: the same event gives the same record at every delivery, because a repeat must be a
// repeat.
//
// Both methods begin by emptying what they fill in (Record.ResetPlace, Record.Reset), which gives
// the record the event's budget: what would be over it is refused before it is made. It aliases the
// event, rec.Buf, rec.Scratch or the encoder: it is valid until rec is used again and as long as
// the event's bytes are, and nobody writes to it. They allocate nothing once rec has grown. Encode
// is never given an event with a Fault or LeftOut; Place is, for the route of its dead letter: what
// could be decoded is there.
//
// A fault is of class Permanent: the event is refused for ever, and becomes a dead letter. It has
// no value of the row in its text.
type Encoder interface {
	// Traits are what all records of the encoder have in common. They never change.
	Traits() Traits
	// Place fills in what decides where the record goes: its destination, Key and Partition. A
	// fault says that there is no destination; Key and Partition are filled in all the same. What
	// else is wrong with an event is left to Encode: the ordering group, the partition that is
	// paused and a replay depend on its place also when there is no record of it.
	Place(ev *event.Event, rec *Record) *Fault
	// Encode fills in the whole record. The destination of an event with a Route is decided: it is
	// that of the Route, and Encode does not refuse an event because a template has none.
	Encode(ev *event.Event, rec *Record) *Fault
}

// Traits are what all records of an encoder have in common.
type Traits struct {
	// The destination of every event without a Route; nil: it depends on the event.
	Topic, Exchange, RoutingKey []byte
	// Partitions says that a row may name its partition.
	Partitions bool
}

// Record is what an event becomes. A sink sends what its broker has a place for: the destination in
// its broker's terms, and as much of the rest as there is.
type Record struct {
	Topic                []byte // nil: none
	Exchange, RoutingKey []byte // nil: none; empty names are names
	Key, Value           []byte // nil: null
	Time                 int64  // ms since 1970
	Partition            int32  // one that the row names, ByKey or Anywhere
	Headers              []Header
	Properties           Properties

	Budget event.Budget // of the event: what may be made for this record, and was not
	// the budget is only a small one: others are made at the same time, see Large
	Small bool
	Buf   []byte // what was made for this record
	// the encoder's scratch space, for its next record; its method Forget, if there is one, drops
	// what is large
	Scratch any
}

// Partitions that no row names.
const (
	ByKey    int32 = -1 // the bytes of Key decide; any will do when it is null
	Anywhere int32 = -2 // any will do: the event has no order
)

// Properties are what AMQP has next to headers. The zero value is none.
type Properties struct {
	ContentType   string
	ID, Type      []byte
	CorrelationID []byte
	Expiration    []byte
	Priority      uint8
	Timestamp     time.Time
	Transient     bool   // the message need not survive a restart of the broker
	NullBody      []byte // the body of a record whose Value is null
}

// Header is one header of a record. A sink whose broker has each name once takes the last one.
type Header struct {
	Name  string
	Value []byte // nil: null
	Kind  HeaderKind
}

// HeaderKind says what a header's value is, for a broker with types; another one takes the bytes.
type HeaderKind uint8

// The kinds of headers.
const (
	Bytes HeaderKind = iota
	Text
	JSON // a JSON value as it stands, but no string: a number, true, false, an array, an object
)

// JSONHeader is the header of a JSON member: a string is its text.
func JSONHeader(name string, raw []byte) Header {
	switch raw[0] {
	case 'n':
		return Header{Name: name, Kind: JSON}
	case '"':
		return Header{Name: name, Value: event.Unquote(raw), Kind: Text}
	}
	return Header{Name: name, Value: raw, Kind: JSON}
}

// AddTextHeader adds a header of text, unless it is nil.
func (r *Record) AddTextHeader(name string, value []byte) {
	if value != nil {
		r.Headers = append(r.Headers, Header{Name: name, Value: value, Kind: Text})
	}
}

// AddMemberHeader adds a header of a JSON object's member (JSONHeader), if the budget has room for
// it; false: it has not.
func (r *Record) AddMemberHeader(name string, raw []byte) bool {
	if !r.Budget.Make(headerSize+len(name)+len(raw)) || !r.Budget.Work(1) {
		return false
	}
	r.Headers = append(r.Headers, JSONHeader(name, raw))
	return true
}

// OverBudget is the fault of an event that would cost more than its budget.
func OverBudget(err error) *Fault { return PermanentFault(TooLarge, err.Error()) }

const (
	// keptBuffer bounds what a record keeps of a buffer between two uses, in bytes.
	keptBuffer = 64 << 10
	headerSize = int(unsafe.Sizeof(Header{}))
)

// ReuseBuffer is a buffer, empty, for the next use: nil for one that has grown for an unusual
// event.
func ReuseBuffer[T any](b []T) []T {
	if uintptr(cap(b))*unsafe.Sizeof(*new(T)) > keptBuffer {
		return nil
	}
	return b[:0]
}

// Reset empties the record for an event.
func (r *Record) Reset(ev *event.Event) {
	r.ResetPlace(ev)
	r.Headers, r.Value, r.Time, r.Properties = ReuseBuffer(r.Headers), nil, 0, Properties{}
}

// Forget drops every reference to the last events' bytes, which belong to the caller again, and
// the buffers of an unusual one.
func (r *Record) Forget() {
	r.Headers = ReuseBuffer(r.Headers)
	clear(r.Headers[:cap(r.Headers)])
	*r = Record{Headers: r.Headers, Buf: ReuseBuffer(r.Buf), Scratch: r.Scratch}
	if own, ok := r.Scratch.(interface{ Forget() }); ok {
		own.Forget()
	}
}

// ResetPlace empties what Place fills in, and Buf.
func (r *Record) ResetPlace(ev *event.Event) {
	r.Topic, r.Exchange, r.RoutingKey, r.Key, r.Partition, r.Buf = nil, nil, nil, nil, ByKey, ReuseBuffer(r.Buf)
	if r.Budget = ev.Budget(); r.Small {
		r.Budget = r.Budget.Small()
	}
}

// MadeSince returns what was appended to Buf since it had this length. It is not nil, and cannot
// grow into what comes behind it.
func (r *Record) MadeSince(start int) []byte {
	if len(r.Buf) == start {
		return []byte{}
	}
	return r.Buf[start:len(r.Buf):len(r.Buf)]
}

// Traceparent is the traceparent that an event's message carries: what trace says, in room of Buf,
// or without trace the row's. The result is nil when there is none.
func (r *Record) Traceparent(ev *event.Event, trace func(ev *event.Event, buf []byte) []byte) []byte {
	if trace == nil {
		return ev.Traceparent
	}
	const size = 64 // enough for a traceparent
	start := len(r.Buf)
	r.Buf = append(r.Buf, make([]byte, size)...)
	return trace(ev, r.Buf[start:start:start+size])
}

// The headers of the relay's own format with any broker.
const (
	HeaderPosition    = "cdc_position"
	HeaderReplay      = "cdc_replay" // on a dead letter that is published again
	headerTraceparent = "traceparent"
)

// ReservedHeaders are the names of headers that the relay writes itself or leaves to a consumer's
// retry, with any broker: not to be configured, dropped from the headers column.
var ReservedHeaders = []string{HeaderPosition, HeaderReplay, headerTraceparent, "x-retry-count"}

// PlainConfig is the configuration of the relay's own format.
type PlainConfig struct {
	// Columns are the extra columns in the order of Event.Columns; templates, headers and
	// properties name them.
	Columns []string
	// Headers are written when their column is not NULL.
	Headers []setting.NamedColumn
	// Traceparent is what a message carries as its traceparent, of its own in buf[:0]; nil:
	// nothing. Without this function it is the row's.
	Traceparent func(ev *event.Event, buf []byte) []byte
	// HeaderDropped is called for a key of the headers column that has one of the relay's own
	// names. It may be nil.
	HeaderDropped func(name string)
}

// PlainHeaders writes the headers of the relay's own format.
type PlainHeaders struct {
	cfg      PlainConfig
	reserved []string
	columns  []int // of Headers: places in Event.Columns
}

// NewPlainHeaders resolves the columns of headers. own are the names of those that the relay writes
// for this broker only.
func NewPlainHeaders(cfg PlainConfig, own []string) (PlainHeaders, error) {
	h := PlainHeaders{cfg: cfg, reserved: slices.Concat(own, ReservedHeaders)}
	for _, named := range cfg.Headers {
		i := slices.Index(cfg.Columns, named.Column)
		if i < 0 {
			return h, fmt.Errorf("header %q: column %q is not read", named.Name, named.Column)
		}
		h.columns = append(h.columns, i)
	}
	return h, nil
}

// Append writes the headers that do not depend on the broker, in this order: the relay's own, the
// configured ones, those of the headers column. That is a JSON object, whose keys are dropped and
// counted when they are the relay's own; a configured header that has a value goes before a key of
// its name. A key that is there twice (type json keeps it) is written twice, and the last one is
// what JSON means. A JSON null is no headers.
func (h *PlainHeaders) Append(ev *event.Event, rec *Record) *Fault {
	start := len(rec.Buf)
	rec.Buf = ev.Position.Append(rec.Buf)
	rec.AddTextHeader(HeaderPosition, rec.MadeSince(start))
	rec.AddTextHeader(headerTraceparent, rec.Traceparent(ev, h.cfg.Traceparent))
	if ev.Replay {
		rec.AddTextHeader(HeaderReplay, replayedValue)
	}
	for i, column := range h.columns {
		rec.AddTextHeader(h.cfg.Headers[i].Name, ev.Columns[column])
	}
	if len(ev.Headers) == 0 {
		return nil
	}
	members, ok := event.MembersOf(ev.Headers)
	if !ok {
		return PermanentFault(Invalid, "the headers column is not a JSON object")
	}
	for name, raw, more := members.Next(); more; name, raw, more = members.Next() {
		name := unsafe.String(unsafe.SliceData(name), len(name)) // aliases the event, as raw does
		if !h.isTaken(name, ev) && !rec.AddMemberHeader(name, raw) {
			return OverBudget(rec.Budget.Err())
		}
	}
	return nil
}

var replayedValue = []byte("true")

// isTaken reports whether the record has a header of the relay's own or a configured one of this
// name.
func (h *PlainHeaders) isTaken(name string, ev *event.Event) bool {
	if i := slices.Index(h.reserved, name); i >= 0 {
		if h.cfg.HeaderDropped != nil {
			h.cfg.HeaderDropped(h.reserved[i]) // not name, which aliases the event
		}
		return true
	}
	for i, column := range h.columns {
		if h.cfg.Headers[i].Name == name && ev.Columns[column] != nil {
			return true
		}
	}
	return false
}

// LargeLock has large messages made one at a time, whatever the number of lanes: what is made of a
// row is up to nine times as large, and while it is made it takes several times as much. Who is
// inside never waits for a broker. Small ones are made by all lanes at once, since the lock would
// cost more than it saves. That a message becomes large is seen when it is over a small budget:
// then it is made again, alone.
type LargeLock struct{ mu sync.Mutex }

// largeRow is the size of a row that is made alone at once, in bytes.
const largeRow = 8 << 10

// IsLarge reports whether an event is to be made alone at once.
func (*LargeLock) IsLarge(ev *event.Event) bool { return ev.Size() > largeRow }

// Enter is called before an event is made, and Leave when what was made is the connection's or is
// dropped.
func (l *LargeLock) Enter(rec *Record, alone bool) {
	if rec.Small = !alone; alone {
		l.mu.Lock()
	}
}

// Leave lets the next one in. again: the event is over its small budget, and to be made alone.
func (l *LargeLock) Leave(rec *Record, alone bool) (again bool) {
	if alone {
		l.mu.Unlock()
		return false
	}
	return rec.Budget.Err() != nil
}

// Place is the encoder's Place.
func (l *LargeLock) Place(by Encoder, ev *event.Event, rec *Record) *Fault {
	for alone := l.IsLarge(ev); ; alone = true {
		l.Enter(rec, alone)
		fault := by.Place(ev, rec)
		if !l.Leave(rec, alone) {
			return fault
		}
	}
}
