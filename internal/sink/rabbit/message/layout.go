// The configured form of messages, with every name resolved.

package message

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Layout says how an event becomes a message, with every column name resolved to its place. It is
// immutable.
type Layout struct {
	exchange, routingKey                template
	exchangeOrTopic, dest               uint64 // the digests of constants, else 0
	headers                             []boundHeader
	correlationID, priority, expiration int // places in Event.Columns, -1 for none
	Dropped                             func(name string)
	// nil: the row's traceparent
	trace func(ev *event.Event, buf []byte) []byte
	// nil: no profile makes the messages
	Router  *debezium.Router
	options *debezium.Options // of the router
}

// template is a sink.Template with its constant value at hand.
type template struct {
	sink.Template
	constant bool
	value    string
	personal bool // it is made from ordering keys: its values are not shown
}

type boundHeader struct {
	name   string
	column int
}

// Config says how an event becomes a message.
type Config struct {
	Exchange, RoutingKey sink.Template
	// Columns are the extra columns in the order of Event.Columns; templates, headers and
	// properties name them.
	Columns []string
	// Headers are written when their column is not NULL.
	Headers []HeaderColumn
	// Profile makes the messages as Debezium Server does, in the place of Exchange, RoutingKey,
	// Headers and properties; nil: none does. The two templates are its Templates then, which are
	// shown in the place of names that are made from keys.
	Profile *debezium.Options
	// CorrelationID, Priority and Expiration name the columns of these properties, "" for none.
	CorrelationID, Priority, Expiration string
	// Traceparent is what a message carries as its traceparent, of its own in buf[:0]; nil:
	// nothing. Without this function it is the row's.
	Traceparent func(ev *event.Event, buf []byte) []byte
	// HeaderDropped is called for a key of the headers column that has one of the relay's own
	// names. It may be nil.
	HeaderDropped func(name string)
}

// NewLayout resolves the columns that cfg names.
func NewLayout(cfg *Config) (Layout, error) {
	l := Layout{Dropped: cfg.HeaderDropped, trace: cfg.Traceparent, correlationID: -1, priority: -1, expiration: -1}
	var err error
	if l.exchange, err = bind(cfg.Exchange, cfg.Columns); err != nil {
		return l, fmt.Errorf("exchange: %w", err)
	}
	if l.routingKey, err = bind(cfg.RoutingKey, cfg.Columns); err != nil {
		return l, fmt.Errorf("routing key: %w", err)
	}
	if cfg.Profile != nil { // the templates say only what is shown of a destination
		l.options = cfg.Profile
		l.Router, err = cfg.Profile.Bind(cfg.Columns)
		return l, err
	}
	if l.exchange.constant {
		l.exchangeOrTopic = sink.ExchangeOrTopicOf([]byte(l.exchange.value))
		if l.routingKey.constant {
			l.dest = sink.DestOfPair(l.exchangeOrTopic, []byte(l.routingKey.value))
		}
	}
	for _, h := range cfg.Headers {
		i := slices.Index(cfg.Columns, h.Column)
		if i < 0 {
			return l, fmt.Errorf("header %q: column %q is not read", h.Name, h.Column)
		}
		l.headers = append(l.headers, boundHeader{h.Name, i})
	}
	for _, p := range []struct {
		name, column string
		place        *int
	}{
		{"correlation_id", cfg.CorrelationID, &l.correlationID},
		{"priority", cfg.Priority, &l.priority},
		{"expiration", cfg.Expiration, &l.expiration},
	} {
		*p.place = slices.Index(cfg.Columns, p.column)
		if p.column == "" {
			*p.place = -1
		} else if *p.place < 0 {
			return l, fmt.Errorf("property %s: column %q is not read", p.name, p.column)
		}
	}
	return l, nil
}

func bind(t sink.Template, columns []string) (template, error) {
	bound, err := t.Bind(columns)
	if err != nil {
		return template{}, err
	}
	value, constant := bound.Constant()
	return template{bound, constant, value, slices.Contains(t.Uses(), "key")}, nil
}
