// Package driver is RabbitMQ as a kind of sink: its section of the configuration, and how it is
// opened.
package driver

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

// New is the driver.
func New() *sink.Driver {
	return &sink.Driver{
		Name: "rabbitmq", Broker: "RabbitMQ", Operation: "publish",
		Route: []sink.RoutePart{
			{Key: "exchange", Replay: "publish to this `EXCHANGE` instead", Limit: message.MaxShortString, MayEmpty: true},
			{Key: "routing_key", Replay: "publish with this routing `KEY` instead", Limit: message.MaxShortString, MayEmpty: true},
		},
		Reserved:   message.OwnHeaders,
		Settings:   func() sink.Settings { return defaults() },
		FixRefusal: fixRefusal,
	}
}

func fixRefusal(reason sink.Reason, r *event.Route) string {
	switch reason { //nolint:exhaustive // the others need nothing of RabbitMQ's own
	case sink.Unroutable:
		return fmt.Sprintf("bind a queue for it: rabbitmqadmin declare binding source=%q destination=QUEUE routing_key=%q; if the exchange keeps or drops messages itself, set sink.rabbitmq.unroutable: ignore", r.Name, r.RoutingKey)
	case sink.NoExchange:
		return fmt.Sprintf("declare exchange %q, bind all queues, then run cdc-relay deferred retry --all", r.Name)
	case sink.NotAllowed:
		return fmt.Sprintf("add a pattern for exchange %q to sink.rabbitmq.allow.exchange, or for routing key %q to sink.rabbitmq.allow.routing_key", r.Name, r.RoutingKey)
	}
	return ""
}

// Open implements sink.Settings.
func (s *Settings) Open(o *sink.Opening) (sink.Opened, error) {
	cfg, err := s.config(o)
	if err != nil {
		return nil, err
	}
	if o.Encoder != nil {
		plain, err := message.NewPlain(&cfg.Config)
		if err != nil {
			return nil, err
		}
		if cfg.Encoder, err = o.Encoder(cfg.Columns, plain); err != nil {
			return nil, err
		}
	}
	return rabbit.New(cfg)
}

// Check implements sink.Settings.
func (s *Settings) Check(ctx context.Context, o *sink.Opening) ([]sink.Finding, error) {
	cfg, err := s.config(o)
	if err != nil {
		return nil, err
	}
	return append(rabbit.Check(ctx, cfg), sink.FindAllowed(section, s.Templates(), o.Mirror, nil)...), nil
}

func (s *Settings) config(o *sink.Opening) (rabbit.Config, error) {
	out := rabbit.Config{
		Dialer: conn.Dialer{
			ConfirmTimeout: o.ConfirmTimeout, ConnectionName: "cdc-relay/" + o.Slot, TLS: s.TLS.Load(section + "tls"),
			Credentials: s.Credentials(), // nil: the addresses carry them
		},
		Config: message.Config{Exchange: s.Exchange, RoutingKey: s.RoutingKey, Allow: s.Allow.Bounds(), AllowHeaders: s.AllowHeaders, ContentType: s.ContentType, PlainConfig: o.PlainConfig},
		Lanes:  o.Lanes, Declare: s.Declare, ExchangeType: s.ExchangeType, Unroutable: s.Unroutable, Log: o.Log,
		Connected: o.Connected, ChannelOpen: o.ChannelOpen, Confirms: o.Confirms,
	}
	for i := range s.Bindings {
		out.Bindings = append(out.Bindings, s.Bindings[i].declared())
	}
	if o.OneLane {
		out.Lanes = 1
	}
	var err error
	if out.URLs, err = s.Addresses(); err != nil {
		return out, err
	}
	for _, p := range s.Properties {
		switch p.Name {
		case contentType:
			out.ContentTypeColumn = p.Column
		case correlationID:
			out.CorrelationID = p.Column
		case priority:
			out.Priority = p.Column
		case expiration:
			out.Expiration = p.Column
		}
	}
	return out, nil
}
