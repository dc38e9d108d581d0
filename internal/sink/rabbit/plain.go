// The encoder of the relay's own format on RabbitMQ.

package rabbit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The message headers of the relay's own format that exist only on RabbitMQ.
const (
	headerAggregate = "aggregate_type"
	headerKey       = "aggregate_id"
	headerTime      = "timestamp_in_ms"
)

// OwnHeaders are the names of these headers.
var OwnHeaders = []string{headerAggregate, headerKey, headerTime}

// plain is the encoder of the relay's own format.
type plain struct {
	exchange, routingKey sink.Template
	headers              sink.PlainHeaders
	contentType          string // "" means that it depends on the kind of the payload
	// Indexes in Event.Columns; -1 means that there is none.
	contentTypeColumn, correlationID, priority, expiration int
}

var _ sink.Encoder = (*plain)(nil)

// newPlain makes the encoder, and finds the columns that cfg names.
func newPlain(cfg *Config) (*plain, error) {
	p := &plain{contentType: cfg.ContentType}
	var err error
	if p.exchange, err = cfg.Exchange.Bind(cfg.Columns); err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	if p.routingKey, err = cfg.RoutingKey.Bind(cfg.Columns); err != nil {
		return nil, fmt.Errorf("routing key: %w", err)
	}
	if p.headers, err = sink.NewPlainHeaders(cfg.PlainConfig, droppedHeaders(cfg.AllowHeaders)); err != nil {
		return nil, err
	}
	for _, of := range []struct {
		name, column string
		place        *int
	}{
		{"content_type", cfg.ContentTypeColumn, &p.contentTypeColumn},
		{"correlation_id", cfg.CorrelationID, &p.correlationID},
		{"priority", cfg.Priority, &p.priority},
		{"expiration", cfg.Expiration, &p.expiration},
	} {
		*of.place = slices.Index(cfg.Columns, of.column)
		if of.column == "" {
			*of.place = -1
		} else if *of.place < 0 {
			return nil, fmt.Errorf("property %s: column %q is not read", of.name, of.column)
		}
	}
	return p, nil
}

// Traits implements sink.Encoder.
func (p *plain) Traits() sink.Traits {
	of := sink.Traits{Exchange: p.exchange.Fixed(), RoutingKey: p.routingKey.Fixed()}
	if p.contentTypeColumn < 0 {
		of.ContentType = p.contentType
	}
	return of
}

// Place implements sink.Encoder.
func (p *plain) Place(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.ResetPlace(ev)
	return p.place(ev, rec)
}

func (p *plain) place(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Key = ev.Key
	if ev.Route != nil {
		return nil
	}
	rec.Exchange, rec.RoutingKey = p.exchange.Name(ev, rec), p.routingKey.Name(ev, rec)
	if rec.Exchange == nil || rec.RoutingKey == nil {
		return noDestination(rec.Exchange != nil)
	}
	return nil
}

// Encode implements sink.Encoder.
func (p *plain) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Reset(ev)
	if fault := p.place(ev, rec); fault != nil {
		return fault
	}
	rec.Value, rec.Time = ev.Payload, ev.Time.UnixMilli()
	of := &rec.Properties
	of.ContentType, of.ID, of.Type, of.Timestamp = cmp.Or(p.contentType, ev.PayloadKind.ContentType()), ev.ID, ev.Type, ev.Time
	if fault := p.properties(ev, of); fault != nil {
		return fault
	}
	rec.AddTextHeader(headerAggregate, ev.Aggregate)
	rec.AddTextHeader(headerKey, ev.Key)
	start := len(rec.Buf)
	rec.Buf = strconv.AppendInt(rec.Buf, rec.Time, 10)
	rec.Headers = append(rec.Headers, sink.Header{Name: headerTime, Value: rec.MadeSince(start), Kind: sink.JSON})
	return p.headers.Append(ev, rec)
}

// properties fills in the properties that come from columns.
func (p *plain) properties(ev *event.Event, of *sink.Properties) *sink.Fault {
	if i := p.contentTypeColumn; i >= 0 && ev.Columns[i] != nil {
		of.ContentType = aliasText(ev.Columns[i])
	}
	if i := p.correlationID; i >= 0 {
		of.CorrelationID = ev.Columns[i]
	}
	if i := p.priority; i >= 0 && ev.Columns[i] != nil {
		n, err := strconv.ParseUint(aliasText(ev.Columns[i]), 10, 8)
		if err != nil {
			return sink.PermanentFault(sink.Invalid, "priority is not a number from 0 to 255")
		}
		of.Priority = uint8(n)
	}
	if i := p.expiration; i >= 0 && ev.Columns[i] != nil {
		// RabbitMQ takes milliseconds up to 2^32-1 and closes the channel over anything else.
		if _, err := strconv.ParseUint(aliasText(ev.Columns[i]), 10, 32); err != nil {
			return sink.PermanentFault(sink.Invalid, "expiration is not a number of milliseconds from 0 to 4294967295")
		}
		of.Expiration = ev.Columns[i]
	}
	return nil
}
