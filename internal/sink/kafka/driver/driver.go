// Package driver is Apache Kafka as a kind of sink: its section of the configuration, and how it is
// opened.
package driver

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
)

// New is the driver.
func New() *sink.Driver {
	return &sink.Driver{
		Name: "kafka", Broker: "Kafka", Operation: "send",
		Route: []sink.RoutePart{{
			Key: "topic", Replay: "publish to this `TOPIC` instead",
			Check: func(name string) error { return checkTopic(sink.MustTemplate(name)) },
		}},
		OwnLanes: true, AppendsCalls: true,
		Reserved: record.OwnHeaders,
		Settings: func() sink.Settings { return defaults() },
		FixRefusal: func(reason sink.Reason, r *event.Route) string {
			switch reason { //nolint:exhaustive // the others need nothing of Kafka's own
			case sink.NoTopic:
				return fmt.Sprintf("create it: kafka-topics.sh --bootstrap-server BROKER --create --topic %s", r.Name)
			case sink.NotAllowed:
				return fmt.Sprintf("add a pattern for %q to sink.kafka.allow.topic", r.Name)
			}
			return ""
		},
	}
}

// Open implements sink.Settings.
func (s *Settings) Open(o *sink.Opening) (sink.Opened, error) {
	cfg := s.config(o)
	if o.Encoder != nil {
		plain, err := record.NewPlain(&cfg.Config)
		if err != nil {
			return nil, err
		}
		if cfg.Encoder, err = o.Encoder(cfg.Columns, plain); err != nil {
			return nil, err
		}
	}
	return kafka.New(cfg)
}

// Check implements sink.Settings.
func (s *Settings) Check(ctx context.Context, o *sink.Opening) ([]sink.Finding, error) {
	found, topics := kafka.Check(ctx, s.config(o))
	return append(found, sink.FindAllowed(section, s.Templates(), o.Mirror, topics)...), nil
}

func (s *Settings) config(o *sink.Opening) kafka.Config {
	return kafka.Config{
		Brokers: s.Brokers, Compression: s.Compression, OneLane: o.OneLane,
		ConfirmTimeout: o.ConfirmTimeout, Log: o.Log, Connected: o.Connected, Confirms: o.Confirms,
		Options: conn.Options{ClientID: "cdc-relay/" + o.Slot, TLS: s.TLSFiles(), SASL: s.Login()},
		Config:  record.Config{Topic: s.Topic, Allow: s.Allow.Bounds(), PlainConfig: o.PlainConfig},
	}
}
