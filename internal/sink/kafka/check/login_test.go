package check

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
)

// A login that others can read is a warning with its fix; on this machine nobody is in between.
func TestLoginWithoutTLS(t *testing.T) {
	const away, here = "kafka.example:9092", "127.0.0.1:9092"
	for name, c := range map[string]struct {
		mechanism string
		tls       bool
		brokers   []string
		warns     string
	}{
		"plain":               {"plain", false, []string{away}, "the password crosses the network as it is"},
		"scram":               {"scram-sha-512", false, []string{away}, "can try out passwords"},
		"one of two":          {"plain", false, []string{here, away}, "as it is"},
		"plain over TLS":      {"plain", true, []string{away}, ""},
		"plain, this machine": {"plain", false, []string{here, "localhost:9092", "[::1]:9092"}, ""},
		"no login":            {"", false, []string{away}, ""},
	} {
		e := examination{opts: &client.Options{Brokers: c.brokers}}
		if c.mechanism != "" {
			e.opts.SASL = func() (*conn.SASL, error) { return &conn.SASL{Mechanism: c.mechanism}, nil }
		}
		if c.tls {
			e.opts.TLS = func() (*tls.Config, error) { return new(tls.Config), nil }
		}
		found := e.login()
		switch {
		case len(found) != min(1, len(c.warns)):
			t.Errorf("%s: found %+v", name, found)
		case c.warns != "" && (!found[0].Warn || !strings.Contains(found[0].Detail, c.warns) || !strings.Contains(found[0].Fix, "sink.kafka.tls: {enabled: true}")):
			t.Errorf("%s: found %+v, want a warning with %q", name, found[0], c.warns)
		}
	}
}
