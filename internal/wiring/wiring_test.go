package wiring

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/relay"
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
		one := opening(cfg, zap.NewNop()).OneLane
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

// The extra columns are those of headers, properties and templates, each once.
func TestSinkColumns(t *testing.T) {
	t.Chdir(t.TempDir())
	const headers = "outbox: {headers: {tenant: tenant_id, area: region}}\n"
	for sink, want := range map[string]string{
		"{kafka: {topic: 'x.{column:region}'}}":                                             "region tenant_id",
		"{rabbitmq: {exchange: '{column:shop}', properties: {priority: urgency}}}":          "region shop tenant_id urgency",
		"{rabbitmq: {exchange: e, routing_key: 'a.{column:region}.{column:b}.{column:b}'}}": "b region tenant_id",
	} {
		if got := strings.Join(SinkColumns(configured(t, sink, headers)), " "); got != want {
			t.Errorf("%s: the columns are %q, want %q", sink, got, want)
		}
	}
}
