package wiring

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

// configured loads a configuration with this sink section, in the directory of the test.
func configured(t *testing.T, sink, more string) *config.Config {
	t.Helper()
	must(t, os.WriteFile("relay.yaml", []byte("source: {url: postgres://h/d, slot: shop}\nsink: "+sink+"\n"+more), 0o600))
	c, err := config.Load("relay.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// On Kafka a call is appended as a whole, so the events of a key travel together; commit is one
// lane on both brokers.
func TestOrderingOfTheLine(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		sink, ordering string
		line           relay.Ordering
		oneLane        bool
	}{
		{"{rabbitmq: {}}", "key", relay.Key, false},
		{"{rabbitmq: {}}", "pipelined", relay.Pipelined, false},
		{"{rabbitmq: {}}", "commit", relay.Commit, true},
		{"{kafka: {}}", "key", relay.Pipelined, false},
		{"{kafka: {}}", "pipelined", relay.Pipelined, false},
		{"{kafka: {}}", "commit", relay.Commit, true},
		{"{kafka: {}}", "none", relay.None, false},
	} {
		cfg := configured(t, c.sink, "delivery: {ordering: "+c.ordering+"}\n")
		if got := Ordering(cfg); got != c.line {
			t.Errorf("%s, %s: the line's ordering is %d, want %d", c.sink, c.ordering, got, c.line)
		}
		var one bool
		if cfg.Sink.Kafka != nil {
			out, _, err := kafkaConfig(cfg, zap.NewNop())
			one = out.OneLane
			must(t, err)
		} else {
			out, _, err := rabbitConfig(cfg, zap.NewNop())
			one = out.Lanes == 1
			must(t, err)
		}
		if one != c.oneLane {
			t.Errorf("%s, %s: one lane is %v", c.sink, c.ordering, one)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestKafkaConfig(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, os.WriteFile("pw", []byte("one"), 0o600))
	c := configured(t, "{kafka: {brokers: 'a,b:1', topic: 'x.{column:region}', compression: lz4, sasl: {mechanism: plain, username: u, password: '${file:pw}'}}}", "outbox: {headers: {tenant: tenant_id, area: region}}\n")
	out, columns, err := kafkaConfig(c, zap.NewNop())
	must(t, err)
	if strings.Join(columns, " ") != "region tenant_id" || strings.Join(out.Columns, " ") != "region tenant_id" || len(out.Headers) != 2 {
		t.Errorf("columns %q, headers %v", columns, out.Headers)
	}
	if topic, ok := out.Topic.Append(nil, &event.Event{Columns: [][]byte{[]byte("eu"), nil}}); !ok || string(topic) != "x.eu" {
		t.Errorf("the topic is %q, %v: it is not bound", topic, ok)
	}
	if strings.Join(out.Brokers, " ") != "a:9092 b:1" || out.Compression != "lz4" || out.ClientID != "cdc-relay/shop" || out.ConfirmTimeout != c.Delivery.ConfirmTimeout {
		t.Errorf("the configuration is %+v", out)
	}
	if out.TLS != nil {
		t.Error("TLS is on without being asked for")
	}
	must(t, os.WriteFile("pw", []byte("two\n"), 0o600))
	login, err := out.SASL()
	must(t, err)
	if login.Mechanism != "plain" || login.Username != "u" || login.Password != "two" {
		t.Error("the login is not that of the configuration, or its file is not read again")
	}
	must(t, os.Remove("pw"))
	if _, err := out.SASL(); err == nil || !strings.Contains(err.Error(), "sink.kafka.sasl.password") {
		t.Errorf("got %v, want an error that names the key", err)
	}

	if out, _, err := kafkaConfig(configured(t, "{kafka: {tls: {enabled: true}}}", ""), zap.NewNop()); err != nil || out.TLS == nil || out.SASL != nil {
		t.Errorf("TLS alone: %+v, %v", out, err)
	}
}

// The header names that config refuses are those that the sinks would drop.
func TestReservedHeadersAgree(t *testing.T) {
	t.Chdir(t.TempDir())
	names := []string{
		"id", "eventType", "aggregateType", "aggregate_type", "aggregate_id", "timestamp_in_ms", "cdc_position", "cdc_replay",
		"traceparent", "tracestate", "x-retry-count", "tenant",
	}
	for sink, reserved := range map[string]func(string) bool{"rabbitmq": message.Reserved, "kafka": record.Reserved} {
		for _, name := range names {
			must(t, os.WriteFile("relay.yaml", []byte("source: {url: postgres://h/d}\nsink: {"+sink+": {}}\noutbox: {headers: {"+name+": column}}\n"), 0o600))
			if _, err := config.Load("relay.yaml", nil); (err != nil) != reserved(name) {
				t.Errorf("%s, header %s: the configuration says %v, the sink reserves it: %v", sink, name, err, reserved(name))
			}
		}
	}
}

// An error about a TLS file names its key.
func TestTLSFilesAreNamedByTheirKey(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	must(t, os.WriteFile(empty, nil, 0o600))
	for want, files := range map[string]config.TLS{
		"sink.kafka.tls.ca: open ":             {CA: filepath.Join(dir, "none.pem")},
		"sink.kafka.tls.ca: no certificate in": {CA: empty},
		"sink.kafka.tls.cert: ":                {Cert: empty},
	} {
		if _, err := BrokerTLS("sink.kafka.tls", files)(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if cfg, err := BrokerTLS("sink.kafka.tls", config.TLS{ServerName: "broker"})(); err != nil || cfg.ServerName != "broker" || cfg.RootCAs != nil {
		t.Errorf("got %+v, %v", cfg, err)
	}
}
