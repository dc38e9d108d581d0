// The contract between a sink and what makes a record of a row: the relay's own format, or one of
// Debezium's profiles. The headers of the relay's own format for all brokers are here, too, and the
// lock that makes large messages one at a time.

package sink

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Encoder makes records of rows. A sink is given one when it is opened, and does not know which.
// The plain format of each sink is an Encoder, and so is each Debezium profile. An Encoder is safe
// for concurrent use and pure: the same event gives the same record at every delivery, because a
// repeat must be the same message.
//
// Both methods first empty what they fill in (Record.ResetPlace, Record.Reset). That gives the
// record the event's budget, and what would exceed it is refused before it is made. A record
// aliases the event, rec.Buf, rec.Scratch or the encoder. It is valid until rec is used again, as
// long as the event's bytes are, and nobody may write to it. The methods allocate nothing once rec
// has grown. Encode is never given an event with a Fault or LeftOut. Place is given such an event
// for the route of its dead letter, with the parts that could be decoded.
//
// A fault has the class Permanent: the event is refused for ever, and becomes a dead letter. The
// text of a fault has no value of the row in it.
type Encoder interface {
	// Traits are what all records of the encoder have in common. They never change.
	Traits() Traits
	// Place fills in what decides where the record goes: its destination, Key and Partition. A
	// fault says that there is no destination; Key and Partition are filled in all the same. Place
	// leaves every other fault to Encode, because the ordering group, the partition that is paused
	// and a replay depend on the place of an event also when no record can be made of it.
	Place(ev *event.Event, rec *Record) *Fault
	// Encode fills in the whole record. For an event with a Route the destination is that of the
	// Route, so Encode does not refuse the event when a template has none.
	Encode(ev *event.Event, rec *Record) *Fault
}

// Traits are what all records of an encoder have in common.
type Traits struct {
	// The destination of every event without a Route; nil means that it depends on the event.
	Topic, Exchange, RoutingKey []byte
	// ContentType is the property of every message; "": it depends on the event, or there is none.
	ContentType string
	// Partitions says that a row may name its partition.
	Partitions bool
}

// Record is what an event becomes. A sink sends the parts that its broker has a place for.
type Record struct {
	Topic                []byte // nil when there is none
	Exchange, RoutingKey []byte // nil when there is none; an empty name is a name
	Key, Value           []byte // nil is null
	Time                 int64  // ms since 1970
	Partition            int32  // the partition that the row names, ByKey or Anywhere
	Headers              []Header
	Properties           Properties

	Budget event.Budget // Budget is how much more may be made for the record of this event.
	// Small says that Budget is only a small one, because other records are made at the same time;
	// see LargeLock.
	Small bool
	Buf   []byte // bytes that were made for this record
	// Scratch is the encoder's own memory, which it keeps between records. If it has a method
	// Forget, that drops what is large.
	Scratch any
}

// The values of Record.Partition when the row names no partition.
const (
	ByKey    int32 = -1 // the bytes of Key decide; a null key may go to any partition
	Anywhere int32 = -2 // the event has no order and may go to any partition
)

// Properties are what AMQP has beside headers. The zero value has none.
type Properties struct {
	ContentType   string
	ID, Type      []byte
	CorrelationID []byte
	Expiration    []byte
	Priority      uint8
	Timestamp     time.Time
	Transient     bool   // the message need not survive a restart of the broker
	NullBody      []byte // the body when Value is null
}

// Header is one header of a record. A sink whose broker has each name only once uses the last one.
type Header struct {
	Name  string
	Value []byte // nil is null
	Kind  HeaderKind
}

// HeaderKind says what kind of value a header has, for brokers with types. Other brokers get only
// the bytes.
type HeaderKind uint8

// The kinds of headers.
const (
	Bytes HeaderKind = iota
	Text
	JSON // a JSON value as it stands, except a string: a number, true, false, an array or an object
)

// JSONHeader makes the header of a member of a JSON object. A string becomes its text.
func JSONHeader(name string, raw []byte) Header {
	switch raw[0] {
	case 'n':
		return Header{Name: name, Kind: JSON}
	case '"':
		return Header{Name: name, Value: event.Unquote(raw), Kind: Text}
	}
	return Header{Name: name, Value: raw, Kind: JSON}
}

// AddTextHeader adds a header of text, unless value is nil.
func (r *Record) AddTextHeader(name string, value []byte) {
	if value != nil {
		r.Headers = append(r.Headers, Header{Name: name, Value: value, Kind: Text})
	}
}

// AddMemberHeader adds the header of a member of a JSON object (JSONHeader). It returns false, and
// adds nothing, when the budget has no room for it.
func (r *Record) AddMemberHeader(name string, raw []byte) bool {
	if !r.Budget.Make(headerSize+len(name)+len(raw)) || !r.Budget.Work(1) {
		return false
	}
	r.Headers = append(r.Headers, JSONHeader(name, raw))
	return true
}

// OverBudget is the fault of an event whose record would exceed its budget.
func OverBudget(err error) *Fault { return PermanentFault(TooLarge, err.Error()) }

const (
	// keptBuffer is the largest buffer that a record keeps between two uses, in bytes.
	keptBuffer = 64 << 10
	headerSize = int(unsafe.Sizeof(Header{}))
)

// ReuseBuffer empties a buffer for its next use. It returns nil for a buffer that has grown for an
// unusual event.
func ReuseBuffer[T any](b []T) []T {
	if uintptr(cap(b))*unsafe.Sizeof(*new(T)) > keptBuffer {
		return nil
	}
	return b[:0]
}

// Reset empties the whole record, for Encode.
func (r *Record) Reset(ev *event.Event) {
	r.ResetPlace(ev)
	r.Headers, r.Value, r.Time, r.Properties = ReuseBuffer(r.Headers), nil, 0, Properties{}
}

// Forget drops every reference to the last event's bytes, which belong to the caller again, and the
// buffers that have grown for an unusual event.
func (r *Record) Forget() {
	r.Headers = ReuseBuffer(r.Headers)
	clear(r.Headers[:cap(r.Headers)])
	*r = Record{Headers: r.Headers, Buf: ReuseBuffer(r.Buf), Scratch: r.Scratch}
	r.forgetScratch()
}

func (r *Record) forgetScratch() {
	if own, ok := r.Scratch.(interface{ Forget() }); ok {
		own.Forget()
	}
}

// ForgetPlace is Forget for a record that was only placed: it costs less.
func (r *Record) ForgetPlace() {
	r.Topic, r.Exchange, r.RoutingKey, r.Key, r.Buf = nil, nil, nil, nil, ReuseBuffer(r.Buf)
	r.forgetScratch()
}

// ResetPlace empties Buf and what Place fills in.
func (r *Record) ResetPlace(ev *event.Event) {
	r.Topic, r.Exchange, r.RoutingKey, r.Key, r.Partition, r.Buf = nil, nil, nil, nil, ByKey, ReuseBuffer(r.Buf)
	if r.Budget = ev.Budget(); r.Small {
		r.Budget = r.Budget.Small()
	}
}

// MadeSince returns what was appended to Buf after it had the length start. The result is never
// nil, and appending to it cannot overwrite what follows in Buf.
func (r *Record) MadeSince(start int) []byte {
	if len(r.Buf) == start {
		return []byte{}
	}
	return r.Buf[start:len(r.Buf):len(r.Buf)]
}

// Traceparent returns the traceparent of an event's message: what trace returns, in room of Buf, or
// the row's when trace is nil. The result is nil when the message has none.
func (r *Record) Traceparent(ev *event.Event, trace func(ev *event.Event, buf []byte) []byte) []byte {
	if trace == nil {
		return ev.Traceparent
	}
	const size = 64 // enough for a traceparent
	start := len(r.Buf)
	r.Buf = append(r.Buf, make([]byte, size)...)
	return trace(ev, r.Buf[start:start:start+size])
}

// The headers of the relay's own format on every broker.
const (
	HeaderPosition    = "cdc_position"
	HeaderReplay      = "cdc_replay" // on a dead letter that is published again
	HeaderTraceparent = "traceparent"
)

// ReservedHeaders are the names of headers that the relay writes on every broker, or leaves to the
// retries of a consumer. They cannot be configured, and are dropped from the headers column.
var ReservedHeaders = []string{HeaderPosition, HeaderReplay, HeaderTraceparent, "x-retry-count"}

// PlainConfig configures the relay's own format.
type PlainConfig struct {
	// Columns are the extra columns in the order of Event.Columns. Templates, headers and
	// properties name them.
	Columns []string
	// Headers are written when their column is not NULL.
	Headers []setting.NamedColumn
	// Traceparent makes a message's traceparent, in buf[:0]; its result nil means that the message
	// has none. When the function is nil, the message has the row's.
	Traceparent func(ev *event.Event, buf []byte) []byte
	// Taken are further names that keys of the headers column may not have, in any case. One that
	// ends with a * is the beginning of names.
	Taken []string
	// HeaderDropped is called for each key of the headers column that is one of the relay's own
	// names, or in Taken. It may be nil.
	HeaderDropped func(name string)
}

// PlainHeaders writes the headers of the relay's own format.
type PlainHeaders struct {
	cfg      PlainConfig
	reserved []string
	columns  []int // of Headers: their indexes in Event.Columns
}

// NewPlainHeaders finds the columns of the configured headers. own are the names of the headers
// that the relay writes on this broker only.
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

// Append adds the headers that do not depend on the broker: first the relay's own, then the
// configured ones, then those of the headers column. That column is a JSON object. A key of it that
// is one of the relay's own names is dropped and counted; a configured header with a value goes
// before a key of the same name. A key that is there twice (type json keeps both) is written twice,
// and the last one is what JSON means. A JSON null has no headers.
func (h *PlainHeaders) Append(ev *event.Event, rec *Record) *Fault {
	start := len(rec.Buf)
	rec.Buf = ev.Position.Append(rec.Buf)
	rec.AddTextHeader(HeaderPosition, rec.MadeSince(start))
	rec.AddTextHeader(HeaderTraceparent, rec.Traceparent(ev, h.cfg.Traceparent))
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
		// it aliases the event, as raw does
		name := unsafe.String(unsafe.SliceData(name), len(name))
		if !h.isTaken(name, ev) && !rec.AddMemberHeader(name, raw) {
			return OverBudget(rec.Budget.Err())
		}
	}
	return nil
}

var replayedValue = []byte("true")

// isTaken reports whether a name belongs to the relay or to a configured header that has a value.
func (h *PlainHeaders) isTaken(name string, ev *event.Event) bool {
	own := TakenBy(h.cfg.Taken, name)
	if i := slices.Index(h.reserved, name); i >= 0 {
		own = h.reserved[i] // a name of the list, because name aliases the event
	}
	if own != "" {
		if h.cfg.HeaderDropped != nil {
			h.cfg.HeaderDropped(own)
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

// TakenBy returns the element of PlainConfig.Taken that a header's name belongs to; "": none.
func TakenBy(taken []string, name string) string {
	for _, of := range taken {
		begin, longer := strings.CutSuffix(of, "*")
		if len(name) >= len(begin) && strings.EqualFold(name[:len(begin)], begin) && (longer || len(name) == len(begin)) {
			return of
		}
	}
	return ""
}

// LargeLock makes large messages one at a time, whatever the number of lanes: a message may be nine
// times as large as its row, and takes several times as much memory while it is made. Who has the
// lock never waits for a broker. Small messages are made by all lanes at once, because the lock
// would cost more than it saves. A message that grows large is noticed when it exceeds a small
// budget, and is then made again under the lock.
type LargeLock struct{ turn chan struct{} } // cap 1, filled by who has the lock

// NewLargeLock makes a lock that nobody has.
func NewLargeLock() *LargeLock { return &LargeLock{make(chan struct{}, 1)} }

// largeRow is the size from which on a row is made under the lock at once, in bytes.
const largeRow = 8 << 10

// IsLarge reports whether an event is to be made under the lock at once.
func (*LargeLock) IsLarge(ev *event.Event) bool { return ev.Size() > largeRow }

// Enter is called before a message is made. alone says that it is made under the lock.
func (l *LargeLock) Enter(rec *Record, alone bool) {
	if rec.Small = !alone; alone {
		l.turn <- struct{}{}
	}
}

// EnterAlone is Enter for who has something else to do meanwhile: wait sends to turn, once.
func (l *LargeLock) EnterAlone(rec *Record, wait func(turn chan<- struct{})) {
	rec.Small = false
	wait(l.turn)
}

// Leave is called when the message was given to the connection, or was dropped. It returns true
// when the message exceeded its small budget, and is to be made again with alone set.
func (l *LargeLock) Leave(rec *Record, alone bool) (again bool) {
	if alone {
		<-l.turn
		return false
	}
	return rec.Budget.Err() != nil
}

// Place is the encoder's Place, under the lock when the event needs it.
func (l *LargeLock) Place(by Encoder, ev *event.Event, rec *Record) *Fault {
	for alone := l.IsLarge(ev); ; alone = true {
		l.Enter(rec, alone)
		fault := by.Place(ev, rec)
		if !l.Leave(rec, alone) {
			return fault
		}
	}
}
