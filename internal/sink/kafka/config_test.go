package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
)

func TestConfig(t *testing.T) {
	good := Config{Brokers: []string{"localhost:9092", "[::1]:9092"}, Topic: kafkatest.Template(t, "{aggregate}")}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no broker":        {func(c *Config) { c.Brokers = nil }, "no broker"},
		"broker":           {func(c *Config) { c.Brokers = []string{"a:1", "user:secret@b"} }, "broker 2 of 2 is not host:port"},
		"port":             {func(c *Config) { c.Brokers = []string{"a:70000"} }, "broker 1 of 1"},
		"no host":          {func(c *Config) { c.Brokers = []string{":9092"} }, "broker 1 of 1"},
		"topic":            {func(c *Config) { c.Topic = kafkatest.Template(t, "a b") }, `topic "a b"`},
		"no topic":         {func(c *Config) { c.Topic = sink.Template{} }, "topic name is empty"},
		"own header":       {func(c *Config) { c.Headers = []record.HeaderColumn{{Name: "cdc_position", Column: "a"}} }, "the relay's own"},
		"nameless header":  {func(c *Config) { c.Headers = []record.HeaderColumn{{Name: "", Column: "a"}} }, "without a name"},
		"compression":      {func(c *Config) { c.Compression = "brotli" }, `compression "brotli"`},
		"confirm timeout":  {func(c *Config) { c.ConfirmTimeout = 1000 * time.Hour }, "confirm timeout"},
		"nothing is wrong": {func(*Config) {}, ""},
	} {
		cfg := good
		c.change(&cfg)
		cfg.defaults()
		err := cfg.validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	cfg := good
	cfg.Headers = []record.HeaderColumn{{Name: "x", Column: "missing"}}
	if _, err := record.NewLayout(cfg.records()); err == nil {
		t.Error("a header of a column that is not read is accepted")
	}
	cfg = good
	cfg.Topic = kafkatest.Template(t, "{column:missing}")
	if _, err := record.NewLayout(cfg.records()); err == nil {
		t.Error("a topic of a column that is not read is accepted")
	}
}
