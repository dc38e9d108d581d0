// How an event becomes a record of Kafka: the topic, partition, key, value and headers, from the
// record that an encoder makes. The encoder of the relay's own format, plainFormat, is here, too.

package kafka

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// layout is the encoder with what is the same for all its records. It is immutable.
type layout struct {
	encoder         sink.Encoder
	Constant        []byte // the topic of all events; nil when it depends on the event
	ExchangeOrTopic uint64 // the digest of Constant
	Names           bool   // a row may name its partition
	// Personal says that the topic is made from ordering keys. These may be about people, so the
	// names of topics are not shown.
	Personal bool
	topic    sink.Template // as people see it
	allow    sink.Allow
	Large    *sink.LargeLock
}

// RecordConfig says how an event becomes a record.
type RecordConfig struct {
	// Encoder makes the records; nil means the relay's own format, with this configuration.
	Encoder sink.Encoder
	// Topic says where records go, for people and for the checks of a start. In the relay's own
	// format it makes the name; any other encoder makes its own.
	Topic sink.Template
	// Allow has the patterns of topics that records may go to.
	Allow sink.Allow

	// PlainConfig configures the relay's own format.
	sink.PlainConfig
}

// newLayout makes the layout of a valid configuration.
func newLayout(cfg *RecordConfig) (*layout, error) {
	l := &layout{encoder: cfg.Encoder, Large: sink.NewLargeLock(), topic: cfg.Topic, allow: cfg.Allow, Personal: slices.Contains(cfg.Topic.Uses(), "key")}
	if l.encoder == nil {
		plain, err := newPlain(cfg)
		if err != nil {
			return nil, err
		}
		l.encoder = plain
	}
	of := l.encoder.Traits()
	if l.Constant, l.Names = of.Topic, of.Partitions; l.Constant != nil {
		l.ExchangeOrTopic = sink.ExchangeOrTopicOf(l.Constant)
	}
	return l, nil
}

// Place fills in what decides where an event's record goes, and returns the name of its topic,
// which is valid as long as rec. With a fault the event cannot be sent, and name may be nil. The
// brokers are never asked about the topic of such an event, because a broker may create a topic
// that it is asked about.
func (l *layout) Place(ev *event.Event, rec *sink.Record) (name []byte, fault *sink.Fault) {
	if ev.Fault != nil {
		return nil, sink.PermanentFault(sink.Undecodable, ev.Fault.Error())
	}
	fault = l.Large.Place(l.encoder, ev, rec)
	switch {
	case ev.Route != nil:
		name = ev.Route.Name
	case fault != nil && ev.LeftOut != nil: // the values that name the topic may be left out
		return nil, sink.RowFault(ev)
	case fault != nil:
		return nil, fault
	default:
		name = rec.Topic
	}
	if name == nil {
		return nil, topicNull
	}
	if ev.Route == nil && l.Constant != nil {
		return name, nil // it was checked with the configuration
	}
	if fault = topicNameFault(name); fault == nil && l.allow != nil && !sink.Allows(l.allow, name) {
		shown := topicTitle(l.Shown(string(name)))
		fault = sink.NotAllowedFault(shown, shown, "sink.kafka.allow.topic", true)
	}
	return name, fault
}

// Route returns an event's topic; the name is nil when it has none.
func (l *layout) Route(ev *event.Event) event.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	var rec sink.Record
	// an event with a fault is refused when its record is built
	_ = l.Large.Place(l.encoder, ev, &rec)
	return event.Route{Name: slices.Clone(rec.Topic)}
}

// Shown returns a topic as logs, status and spans may show it. A topic that is made from ordering
// keys is shown as its template, and so is the mirror's then, because whoever shows it does not
// know whose record it is.
func (l *layout) Shown(topic string) string {
	if l.Personal {
		return l.topic.String()
	}
	return topic
}

// maxRecord bounds key, value and headers of one record, in bytes. A broker closes the connection
// without an answer over a request of more than socket.request.max.bytes (100 MiB by default). That
// looks like a lost connection, and a larger record would be sent for ever.
const maxRecord = 100<<20 - 64<<10

// headerLengths is how many bytes the two lengths of a header take at most.
const headerLengths = 10

// builder makes records for one lane. Build fills it from an event, and it is valid until the next
// Build. Key and value are as the encoder gives them; headers are encoded as in the record.
type builder struct {
	kafkaclient.Record
	layout *layout
	record sink.Record
}

// newBuilder makes a builder for one lane. Many builders may share a layout.
func newBuilder(l *layout) *builder { return &builder{layout: l} }

// Build makes the record of an event, or returns why the event can never become one.
func (b *builder) Build(ev *event.Event) *sink.Fault {
	if fault := sink.RowFault(ev); fault != nil {
		return fault
	}
	rec := &b.record
	if fault := b.layout.encoder.Encode(ev, rec); fault != nil {
		return fault
	}
	if rec.Time < 0 {
		// A broker may store such a record, but Kafka's own producer refuses to send it, and Kafka
		// Streams stops at it.
		return tooEarly
	}
	b.Key, b.Value, b.Time = rec.Key, rec.Value, rec.Time
	b.Headers, b.HeaderCount = b.Headers[:0], 0
	for i := range rec.Headers {
		h := &rec.Headers[i]
		if !rec.Budget.Make(len(h.Name) + len(h.Value) + headerLengths) {
			return sink.OverBudget(rec.Budget.Err())
		}
		b.AddHeader(h.Name, h.Value)
	}
	if size := len(b.Key) + len(b.Value) + len(b.Headers); size > maxRecord {
		return sink.PermanentFault(sink.TooLarge, fmt.Sprintf("a record of %d bytes, a broker's requests carry %d", size, maxRecord))
	}
	return nil
}

// Forget drops the references to the last event's bytes, which belong to the caller again, and
// buffers that an unusually large event has grown.
func (b *builder) Forget() {
	b.Key, b.Value = nil, nil
	b.record.Forget()
	b.Headers = sink.ReuseBuffer(b.Headers)
}

// PartitionOf returns the partition of an event that was placed in rec, among count partitions,
// which must be above 0. The result is count or more when the row names a partition that does not
// exist. A key goes where the default partitioner of Kafka's own producer puts it. An event without
// a key has no order to keep and is spread by the digest of its position, so that it goes to the
// same partition at every delivery while count stays the same.
func PartitionOf(ev *event.Event, rec *sink.Record, count int32) int32 {
	switch {
	case rec.Partition >= 0:
		return rec.Partition
	case rec.Partition == sink.Anywhere || rec.Key == nil:
		return int32(ev.Hash % uint64(count))
	}
	return kafkaclient.PartitionOf(rec.Key, count)
}

// keyPartition returns the partition of an event by the key in its row, among count partitions,
// which must be above 0.
func keyPartition(ev *event.Event, count int32) int32 {
	if len(ev.Key) > 0 {
		return kafkaclient.PartitionOf(ev.Key, count)
	}
	return int32(ev.Hash % uint64(count))
}

// noPartition is the fault of an event that names a partition which its topic does not have. It
// does not name the partition, which is a column's value.
func noPartition(topic string, count int) *sink.Fault {
	return sink.PermanentFault(sink.Invalid, fmt.Sprintf("it names a partition beyond the %d that topic %q has", count, topic))
}

// The record headers of the relay's own format that exist only on Kafka.
const (
	HeaderID        = "id"
	HeaderType      = "eventType"
	headerAggregate = "aggregateType"
)

// OwnHeaders are the names of these headers.
var OwnHeaders = []string{HeaderID, HeaderType, headerAggregate}

// plainFormat is the encoder of the relay's own format.
type plainFormat struct {
	topic   sink.Template
	headers sink.PlainHeaders
}

var _ sink.Encoder = (*plainFormat)(nil)

// newPlain makes the encoder, and finds the columns that cfg names.
func newPlain(cfg *RecordConfig) (*plainFormat, error) {
	topic, err := cfg.Topic.Bind(cfg.Columns)
	if err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	headers, err := sink.NewPlainHeaders(cfg.PlainConfig, OwnHeaders)
	return &plainFormat{topic, headers}, err
}

// Traits implements sink.Encoder.
func (p *plainFormat) Traits() sink.Traits { return sink.Traits{Topic: p.topic.Fixed()} }

// Place implements sink.Encoder.
func (p *plainFormat) Place(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.ResetPlace(ev)
	return p.place(ev, rec)
}

func (p *plainFormat) place(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Key = ev.Key
	if len(ev.Key) == 0 { // an empty key is written, but gives no order
		rec.Partition = sink.Anywhere
	}
	if ev.Route != nil {
		return nil
	}
	if rec.Topic = p.topic.Name(ev, rec); rec.Topic == nil {
		return topicNull
	}
	return nil
}

// Encode implements sink.Encoder. Kafka's headers are bytes: a string of the headers column is its
// text, null is a null value, and a number, true, false, an array or an object is its JSON text
// unchanged.
func (p *plainFormat) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Reset(ev)
	if fault := p.place(ev, rec); fault != nil {
		return fault
	}
	rec.Value, rec.Time = ev.Payload, ev.Time.UnixMilli()
	rec.Headers = append(rec.Headers, sink.Header{Name: HeaderID, Value: ev.ID, Kind: sink.Text})
	rec.AddTextHeader(HeaderType, ev.Type)
	rec.AddTextHeader(headerAggregate, ev.Aggregate)
	return p.headers.Append(ev, rec)
}

// maxTopic is how long a topic's name may be.
const maxTopic = 249

// The faults of a topic, and of a time. All events with the fault share it.
var (
	topicNull = sink.PermanentFault(sink.NullInTemplate, "topic has a NULL in its template")
	topicNone = sink.PermanentFault(sink.Invalid, "topic name is empty")
	topicLong = sink.PermanentFault(sink.Invalid, "topic name is longer than the 249 characters that Kafka allows")
	topicDots = sink.PermanentFault(sink.Invalid, "topic name is '.' or '..', which Kafka does not allow")
	tooEarly  = sink.PermanentFault(sink.Invalid, "the time is before 1970, a Kafka record carries none")
	topicChar = sink.PermanentFault(sink.Invalid, "topic name has a character other than letters, digits, '.', '_' and '-'")
)

// topicNameFault returns what is wrong with a topic's name, by the rules of
// org.apache.kafka.common.internals.Topic.validate, or nil.
func topicNameFault(name []byte) *sink.Fault {
	switch {
	case len(name) == 0:
		return topicNone
	case len(name) > maxTopic:
		return topicLong
	case string(name) == "." || string(name) == "..":
		return topicDots
	}
	for _, c := range name {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return topicChar
	}
	return nil
}

// topicTitle names a topic as a fault does.
func topicTitle(topic string) string { return fmt.Sprintf("topic %q", topic) }
