// The relay's own format of records.

package record

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The record headers that are the relay's own on Kafka, next to those of all brokers.
const (
	HeaderID        = "id"
	HeaderType      = "eventType"
	headerAggregate = "aggregateType"
)

// OwnHeaders are their names.
var OwnHeaders = []string{HeaderID, HeaderType, headerAggregate}

// Plain is the encoder of the relay's own format.
type Plain struct {
	topic   sink.Template
	headers sink.PlainHeaders
}

var _ sink.Encoder = (*Plain)(nil)

// NewPlain resolves the columns that cfg names.
func NewPlain(cfg *Config) (*Plain, error) {
	topic, err := cfg.Topic.Bind(cfg.Columns)
	if err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	headers, err := sink.NewPlainHeaders(cfg.PlainConfig, OwnHeaders)
	return &Plain{topic, headers}, err
}

// Traits implements sink.Encoder.
func (p *Plain) Traits() sink.Traits { return sink.Traits{Topic: p.topic.Fixed()} }

// Place implements sink.Encoder.
func (p *Plain) Place(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Unplace(ev)
	return p.place(ev, rec)
}

func (p *Plain) place(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Key = ev.Key
	if len(ev.Key) == 0 { // an empty key is written, and orders nothing
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
func (p *Plain) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Reset(ev)
	if fault := p.place(ev, rec); fault != nil {
		return fault
	}
	rec.Value, rec.Time = ev.Payload, ev.Time.UnixMilli()
	rec.Headers = append(rec.Headers, sink.Header{Name: HeaderID, Value: ev.ID, Kind: sink.Text})
	rec.AddText(HeaderType, ev.Type)
	rec.AddText(headerAggregate, ev.Aggregate)
	return p.headers.Append(ev, rec)
}
