// Package record makes a Kafka record of an event: its topic, partition, key, value and headers, of
// the record that an encoder makes. Plain is the encoder of the relay's own format.
package record

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Layout has the encoder, and what is known of all its records. It is immutable.
type Layout struct {
	encoder         sink.Encoder
	Constant        []byte // the topic of all events, nil when it depends on the event
	ExchangeOrTopic uint64 // its digest
	Names           bool   // a row may name its partition
	// the topic is made from ordering keys, which may be about people: its names are not shown
	Personal bool
	topic    sink.Template // as people see it
	allow    sink.Allow
	Large    *sink.Large
}

// Config says how an event becomes a record.
type Config struct {
	// Encoder makes the records; nil: the relay's own format, NewPlain of this configuration.
	Encoder sink.Encoder
	// Topic says where records go, for people and for the checks of a start. In the relay's own
	// format it makes the name; any other encoder makes its own.
	Topic sink.Template
	// Allow are the patterns of where records may go.
	Allow sink.Allow

	// PlainConfig is of the relay's own format.
	sink.PlainConfig
}

// NewLayout makes the layout of a configuration, which is valid.
func NewLayout(cfg *Config) (*Layout, error) {
	l := &Layout{encoder: cfg.Encoder, Large: new(sink.Large), topic: cfg.Topic, allow: cfg.Allow, Personal: slices.Contains(cfg.Topic.Uses(), "key")}
	if l.encoder == nil {
		plain, err := NewPlain(cfg)
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
// valid as long as rec. With a fault the event cannot be sent, and name may be nil. The brokers are
// never asked about such a topic: a broker may create what it is asked about.
func (l *Layout) Place(ev *event.Event, rec *sink.Record) (name []byte, fault *sink.Fault) {
	if ev.Fault != nil {
		return nil, sink.PermanentFault(sink.Undecodable, ev.Fault.Error())
	}
	fault = l.Large.Place(l.encoder, ev, rec)
	switch {
	case ev.Route != nil:
		name = ev.Route.Name
	case fault != nil && ev.LeftOut != nil: // what names the topic may be left out
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
		return name, nil // examined with the configuration
	}
	if fault = CheckTopic(name); fault == nil && l.allow != nil && !sink.Allows(l.allow, name) {
		shown := TopicName(l.Shown(string(name)))
		fault = sink.NotAllowedFault(shown, shown, "sink.kafka.allow.topic", true)
	}
	return name, fault
}

// Route names an event's topic; nil when it has none.
func (l *Layout) Route(ev *event.Event) event.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	var rec sink.Record
	_ = l.Large.Place(l.encoder, ev, &rec) // the event is refused when it is built
	return event.Route{Name: slices.Clone(rec.Topic)}
}

// Shown is a topic as logs, status and spans may show it: one that is made from an ordering key is
// shown as its template. So is the mirror's then: a stream does not know whose records it carries.
func (l *Layout) Shown(topic string) string {
	if l.Personal {
		return l.topic.String()
	}
	return topic
}
