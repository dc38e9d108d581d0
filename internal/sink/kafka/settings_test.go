package kafka

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// TestConfig reads a section and makes the sink's configuration of it. The password is read again
// at every login.
func TestConfig(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(text string) {
		if err := os.WriteFile("pw", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	s := defaultSettings()
	read(t, s, map[string]string{
		"brokers": "a,b:1", "topic": "x.{column:region}", "compression": "lz4",
		"sasl.mechanism": "plain", "sasl.username": "u", "sasl.password": "${file:pw}",
	})
	out := s.config(&sink.Opening{
		Slot: "shop", OneLane: true, ConfirmTimeout: time.Minute, PlainConfig: sink.PlainConfig{
			Columns: []string{"region", "tenant_id"}, Headers: []setting.NamedColumn{{Name: "tenant", Column: "tenant_id"}},
		},
	})
	if strings.Join(out.Brokers, " ") != "a:9092 b:1" || out.Compression != "lz4" || out.ClientID != "cdc-relay/shop" || out.Topic.String() != s.Topic.String() ||
		!out.OneLane || out.ConfirmTimeout != time.Minute || len(out.Headers) != 1 || len(out.Columns) != 2 {
		t.Errorf("the configuration is %+v", out)
	}
	if out.TLS != nil {
		t.Error("TLS is on without being asked for")
	}
	write("two\n")
	login, err := out.SASL(t.Context())
	if err != nil || login.Mechanism != "plain" || login.Username != "u" || login.Password != "two" {
		t.Errorf("the login is not that of the configuration, or its file is not read again: %v", err)
	}
	if err := os.Remove("pw"); err != nil {
		t.Fatal(err)
	}
	if _, err := out.SASL(t.Context()); err == nil || !strings.Contains(err.Error(), "sink.kafka.sasl.password") {
		t.Errorf("got %v, want an error that names the key", err)
	}

	alone := defaultSettings()
	read(t, alone, map[string]string{"tls.enabled": "true"})
	if out := alone.config(&sink.Opening{}); out.TLS == nil || out.SASL != nil {
		t.Errorf("TLS alone: %+v", out)
	}
}

// read gives keys their values.
func read(t *testing.T, s *Settings, values map[string]string) {
	t.Helper()
	var r setting.Reader
	for _, k := range s.Keys() {
		if text, given := values[k.Name]; given {
			k.Set(&r, section+k.Name, &setting.Node{Kind: setting.Scalar, Text: text})
		}
	}
	if len(r.Faults) > 0 {
		t.Fatal(r.Faults.Stop())
	}
}
