package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// examined runs Check for a topic and returns what it has found. Each line that is not OK has a mend.
func examined(t *testing.T, cfg Config, topic string) []sink.Finding {
	t.Helper()
	template, err := sink.ParseTemplate(topic)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Topic = template
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found := Check(ctx, cfg)
	for _, f := range found {
		if f.OK && (f.Warn || f.Mend != "") || !f.OK && f.Mend == "" || f.Detail == "" {
			t.Errorf("found %+v", f)
		}
	}
	return found
}

// checked is examined by name, for what is found once.
func checked(t *testing.T, cfg Config, topic string) map[string]sink.Finding {
	t.Helper()
	found := map[string]sink.Finding{}
	for _, f := range examined(t, cfg, topic) {
		found[f.Name] = f
	}
	return found
}

// named are the findings of a name.
func named(found []sink.Finding, name string) []sink.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f sink.Finding) bool { return f.Name != name })
}

// want looks at one finding.
func want(t *testing.T, f sink.Finding, ok, warn bool, detail, mend string) {
	t.Helper()
	if f.OK != ok || f.Warn != warn || !strings.Contains(f.Detail, detail) || !strings.Contains(f.Mend, mend) {
		t.Errorf("found %+v, want OK %v, a warning %v, with %q and %q", f, ok, warn, detail, mend)
	}
}

// A password that crosses the network as it is.
func TestCheckOfPlainWithoutTLS(t *testing.T) {
	for name, c := range map[string]struct {
		mechanism string
		tls       bool
		warns     bool
	}{
		"plain":          {"plain", false, true},
		"plain over TLS": {"plain", true, false},
		"scram":          {"scram-sha-256", false, false},
	} {
		cfg := Config{
			Brokers: []string{"127.0.0.1:1"},
			SASL:    func() (*SASL, error) { return &SASL{Mechanism: c.mechanism, Username: "relay", Password: "p"}, nil },
		}
		if c.tls {
			cfg.TLS = func() (*tls.Config, error) { return new(tls.Config), nil }
		}
		found := named(examined(t, cfg, "t"), "login")
		if len(found) > 0 != c.warns {
			t.Errorf("%s: found %+v", name, found)
		}
		if c.warns {
			want(t, found[0], false, true, "plain without TLS", "tls.enabled: true")
		}
	}
}

// What can be wrong with a connection has a mend of its own.
func TestMendDial(t *testing.T) {
	_, missing := os.Open("/nowhere/ca.pem")
	for want, err := range map[string]error{
		"firewall":                    &net.OpError{Op: "dial", Err: errors.New("refused")},
		"correct the path":            fmt.Errorf("sink.kafka.tls.ca: %w", missing),
		"what the port expects":       fmt.Errorf("open TLS: %w", io.EOF),
		"listener.security.protocol":  context.DeadlineExceeded,
		"what this line names":        errors.New("broker has no Produce request"),
		"check sink.kafka.sasl":       errLogin,
		"set sink.kafka.sasl, or use": errWantsLogin,
		"set sink.kafka.tls.enabled":  errWantsTLS,
		"does not speak TLS":          tls.RecordHeaderError{},
	} {
		if got := mendDial(fmt.Errorf("connect: %w", err)); !strings.Contains(got, want) {
			t.Errorf("of %v: %q, want %q", err, got, want)
		}
	}
}

// The commands of the mends can be copied: with TLS or a login they name the file that has them, and the user where it is known.
func TestMendCommands(t *testing.T) {
	template, err := sink.ParseTemplate("outbox.event.{aggregate}")
	must(t, err)
	overTLS := func() (*tls.Config, error) { return new(tls.Config), nil }
	login := func() (*SASL, error) { return &SASL{Mechanism: "plain", Username: "relay", Password: "p"}, nil }
	unreadable := func() (*SASL, error) { return nil, errors.New("no such file") }
	const plain, secure = "--bootstrap-server b:9092 --", "--bootstrap-server b:9092 --command-config admin.properties --"
	for name, c := range map[string]struct {
		cfg           Config
		at, principal string
	}{
		"plaintext":      {Config{}, plain, "User:NAME "},
		"TLS":            {Config{TLS: overTLS}, secure, "User:NAME "},
		"login":          {Config{SASL: login}, secure, "User:relay "},
		"login over TLS": {Config{TLS: overTLS, SASL: login}, secure, "User:relay "},
		"unreadable":     {Config{SASL: unreadable}, secure, "User:NAME "},
	} {
		c.cfg.Topic = template
		e := examination{sink: &Sink{cfg: c.cfg}, conn: &conn{addr: "b:9092"}, cluster: new(metadata.Response)}
		for _, command := range []string{e.grant("t"), e.create("t"), e.setLeast("t", 2), e.describe("t")} {
			if !strings.Contains(command, c.at) {
				t.Errorf("%s: %s", name, command)
			}
		}
		if command := e.grant("t"); !strings.Contains(command, "--allow-principal "+c.principal) {
			t.Errorf("%s: %s", name, command)
		}
	}
}
