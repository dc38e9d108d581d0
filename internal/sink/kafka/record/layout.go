// Package record makes a Kafka record of an event: its topic, partition, key, value and headers, by
// the relay's own form or by Debezium's.
package record

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Layout says how an event becomes a record, with every column name resolved to its place. It is
// immutable.
type Layout struct {
	topicName sink.Template
	Constant  []byte // the topic of a template without placeholders, else nil
	// the topic is made from ordering keys, which may be about people: its names are not shown
	Personal        bool
	ExchangeOrTopic uint64 // its digest
	headers         []boundHeader
	dropped         func(name string)
	trace           func(ev *event.Event, buf []byte) []byte // nil: the row's traceparent
	router          *debezium.Router                         // nil: no profile makes the records
	Names           bool                                     // a row may name its partition
}

type boundHeader struct {
	name   string
	column int
}

// Config says how an event becomes a record.
type Config struct {
	// Topic is the name of an event's topic.
	Topic sink.Template
	// Columns are the extra columns in the order of Event.Columns; the topic and the headers name
	// them.
	Columns []string
	// Headers are written when their column is not NULL.
	Headers []HeaderColumn
	// Profile makes the records as Debezium does, in the place of Topic, Headers and the relay's
	// own headers; nil: none does. Topic is of its Templates then, and shown in the place of names
	// that are made from keys.
	Profile *debezium.Options
	// Traceparent is what a message carries as its traceparent, of its own in buf[:0]; nil:
	// nothing. Without this function it is the row's.
	Traceparent func(ev *event.Event, buf []byte) []byte
	// HeaderDropped is called for a key of the headers column that has one of the relay's own
	// names. It may be nil.
	HeaderDropped func(name string)
}

// NewLayout resolves the columns that cfg, which is valid, names.
func NewLayout(cfg *Config) (*Layout, error) {
	l := &Layout{dropped: cfg.HeaderDropped, trace: cfg.Traceparent}
	var err error
	if l.topicName, err = cfg.Topic.Bind(cfg.Columns); err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	l.Personal = slices.Contains(l.topicName.Uses(), "key")
	if cfg.Profile != nil { // the template says only what is shown of a topic
		l.Names = cfg.Profile.NamesPartition()
		l.router, err = cfg.Profile.Bind(cfg.Columns)
		return l, err
	}
	if name, constant := l.topicName.Constant(); constant {
		l.Constant = []byte(name)
		l.ExchangeOrTopic = sink.ExchangeOrTopicOf(l.Constant)
	}
	for _, h := range cfg.Headers {
		i := slices.Index(cfg.Columns, h.Column)
		if i < 0 {
			return nil, fmt.Errorf("header %q: column %q is not read", h.Name, h.Column)
		}
		l.headers = append(l.headers, boundHeader{h.Name, i})
	}
	return l, nil
}

// Topic returns the name of an event's topic. A name that is made is in buf[:0], which grows if
// needed; any other name must not be written to. With a fault the event can never be sent, and name
// may be nil.
func (l *Layout) Topic(ev *event.Event, buf []byte) (name []byte, fault *sink.Fault) {
	var ok bool
	switch {
	case ev.Fault != nil:
		return nil, undecodable(ev)
	case ev.Route != nil:
		name, ok = ev.Route.Name, ev.Route.Name != nil
	case l.Constant != nil:
		return l.Constant, nil
	case l.router != nil:
		return l.routed(ev, buf)
	default:
		name, ok = l.topicName.Append(buf[:0], ev)
	}
	if !ok {
		return nil, topicNull
	}
	return name, CheckTopic(name)
}

// Made reports whether topic puts an event's topic together.
func (l *Layout) Made(ev *event.Event) bool { return ev.Route == nil && l.Constant == nil }

// Route names an event's topic; nil when it has none.
func (l *Layout) Route(ev *event.Event) event.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	if l.router != nil {
		name, err := l.router.Topic(ev, []byte{})
		if err != nil {
			name = nil
		}
		return event.Route{Name: name}
	}
	name, ok := l.topicName.Append([]byte{}, ev)
	if !ok {
		name = nil
	}
	return event.Route{Name: name}
}

// Shown is a topic as logs, status and spans may show it: one that is made from an ordering key is
// shown as its template. So is the mirror's then: a stream does not know whose records it carries.
func (l *Layout) Shown(topic string) string {
	if l.Personal {
		return l.topicName.String()
	}
	return topic
}
