package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
)

// This file turns the configuration into the packages' own ones; nothing is started here.

// line gives relay.Line the shape that replication asks for.
type line struct{ *relay.Line }

func (l line) Watermark() (position, own pglogrepl.LSN) {
	w := l.Line.Watermark()
	return w.LSN, w.Own
}

var orderings = map[string]relay.Ordering{
	config.OrderingKey:       relay.Key,
	config.OrderingPipelined: relay.Pipelined,
	config.OrderingCommit:    relay.Commit,
	config.OrderingNone:      relay.None,
}

// replicationConfig is the source side; NewLine and Hooks are left to run.
func replicationConfig(c *config.Config, columns []string, log *zap.Logger) (replication.Config, error) {
	url, err := c.Source.URL.Read()
	if err != nil {
		return replication.Config{}, usage("source.url", err)
	}
	tables := make([]decode.Table, len(c.Source.Tables))
	for i, t := range c.Source.Tables {
		tables[i] = decode.Table{Schema: t.Schema, Name: t.Name, Mapping: mapping(t.Outbox)}
	}
	return replication.Config{
		URL: url, Password: c.Source.Password.Read,
		Slot: c.Source.Slot, Publication: c.Source.Publication,
		Tables: tables, Columns: columns,
		Create: c.Source.Create, Backfill: c.Source.Backfill,
		MaxConnections: c.Source.MaxConnections, WALSenderTimeout: c.Source.WALSenderTimeout,
		Grace: c.Delivery.ShutdownGrace, Log: log,
	}, nil
}

func mapping(o config.Outbox) decode.Mapping {
	must := func(c config.Column) decode.Names { return decode.Names{Any: c.Names} }
	may := func(c config.Column) decode.Names { return decode.Names{Any: c.Names, Optional: !c.Written} }
	return decode.Mapping{
		ID: must(o.ID), Aggregate: must(o.Aggregate), Key: must(o.Key), Type: must(o.Type), Payload: must(o.Payload),
		Timestamp: may(o.Timestamp), Traceparent: may(o.Traceparent), Headers: may(o.HeadersColumn),
	}
}

// rabbitConfig is the RabbitMQ side, and the extra columns that its templates, headers and properties need.
func rabbitConfig(c *config.Config, log *zap.Logger) (rabbit.Config, []string, error) {
	r := c.Sink.RabbitMQ
	out := rabbit.Config{
		Connections: r.Connections, Lanes: c.Delivery.Lanes, Declare: r.Declare,
		Pipelined:      c.Delivery.Ordering != config.OrderingKey,
		ConfirmTimeout: c.Delivery.ConfirmTimeout, ConnectionName: "cdc-relay/" + c.Source.Slot,
		Log: log, TLS: brokerTLS(r.TLS),
	}
	if c.Delivery.Ordering == config.OrderingCommit {
		out.Lanes = 1
	}
	for _, u := range r.URLs {
		url, err := u.Read()
		if err != nil {
			return out, nil, usage("sink.rabbitmq.url", err)
		}
		out.URLs = append(out.URLs, url)
	}
	out.Credentials = r.Credentials() // nil: the addresses carry them
	var named []string
	for _, h := range c.Outbox.Headers {
		out.Headers = append(out.Headers, rabbit.HeaderColumn{Name: h.Name, Column: h.Column.Names[0]})
		named = append(named, h.Column.Names[0])
	}
	for _, p := range r.Properties {
		column := p.Column.Names[0]
		switch p.Name {
		case "correlation_id":
			out.CorrelationID = column
		case "priority":
			out.Priority = column
		case "expiration":
			out.Expiration = column
		}
		named = append(named, column)
	}
	named = append(named, r.Exchange.Columns()...)
	named = append(named, r.RoutingKey.Columns()...)
	slices.Sort(named)
	out.Columns = slices.Compact(named)
	var err error
	if out.Exchange, err = r.Exchange.Bind(out.Columns); err != nil {
		return out, nil, err
	}
	out.RoutingKey, err = r.RoutingKey.Bind(out.Columns)
	return out, out.Columns, err
}

// brokerTLS reads the files anew at every connect, so that rotated certificates are taken up.
func brokerTLS(t config.TLS) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		out := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
		if t.CA != "" {
			pem, err := os.ReadFile(t.CA)
			if err != nil {
				return nil, fmt.Errorf("sink.rabbitmq.tls.ca: %w", err)
			}
			out.RootCAs = x509.NewCertPool()
			if !out.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("sink.rabbitmq.tls.ca: no certificate in %s", t.CA)
			}
		}
		if t.Cert != "" {
			pair, err := tls.LoadX509KeyPair(t.Cert, cmp.Or(t.Key, t.Cert))
			if err != nil {
				return nil, fmt.Errorf("sink.rabbitmq.tls.cert: %w", err)
			}
			out.Certificates = []tls.Certificate{pair}
		}
		return out, nil
	}
}

func usage(key string, err error) error {
	return &outbox.Stop{Code: outbox.ExitUsage, Reason: "config", What: key, Err: err}
}
