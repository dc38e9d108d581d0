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

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// examined runs Check for a topic and returns what it has found. Each line that is not OK has a
// fix.
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
		if f.OK && (f.Warn || f.Fix != "") || !f.OK && f.Fix == "" || f.Detail == "" {
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

// want checks one finding.
func want(t *testing.T, f sink.Finding, ok, warn bool, detail, fix string) {
	t.Helper()
	if f.OK != ok || f.Warn != warn || !strings.Contains(f.Detail, detail) || !strings.Contains(f.Fix, fix) {
		t.Errorf("found %+v, want OK %v, a warning %v, with %q and %q", f, ok, warn, detail, fix)
	}
}

// What can be wrong with a connection has a fix of its own.
func TestFixDial(t *testing.T) {
	_, missing := os.Open("/nowhere/ca.pem")
	for want, err := range map[string]error{
		"firewall":                    &net.OpError{Op: "dial", Err: errors.New("refused")},
		"correct the path":            fmt.Errorf("sink.kafka.tls.ca: %w", missing),
		"what the port expects":       fmt.Errorf("open TLS: %w", io.EOF),
		"listener.security.protocol":  context.DeadlineExceeded,
		"what this line names":        errors.New("no such thing"),
		"check sink.kafka.sasl":       kafkaclient.ErrLogin,
		"set sink.kafka.sasl, or use": kafkaclient.ErrWantsLogin,
		"set sink.kafka.tls.enabled":  kafkaclient.ErrWantsTLS,
		"does not speak TLS":          kafkaclient.ErrNoTLS,
		"leave sink.kafka.sasl out":   kafkaclient.ErrNoLogin,
		"sasl.enabled.mechanisms":     fmt.Errorf("%w: %w", kafkaclient.ErrLogin, kafkaclient.ErrNoMechanism),
		"zstd 2.1":                    kafkaclient.ErrTooOld,
	} {
		if got := fixDial(fmt.Errorf("connect: %w", err)); !strings.Contains(got, want) {
			t.Errorf("of %v: %q, want %q", err, got, want)
		}
	}
}

// The commands of the fixes can be copied: with TLS or a login they name the file that has them,
// and the user where it is known.
func TestFixCommands(t *testing.T) {
	template, err := sink.ParseTemplate("outbox.event.{aggregate}")
	if err != nil {
		t.Fatal(err)
	}
	overTLS := func() (*tls.Config, error) { return new(tls.Config), nil }
	login := func(context.Context) (*kafkaclient.SASL, error) {
		return &kafkaclient.SASL{Mechanism: "plain", Username: "relay", Password: "p"}, nil
	}
	unreadable := func(context.Context) (*kafkaclient.SASL, error) { return nil, errors.New("no such file") }
	const plain, secure = "--bootstrap-server b:9092 --", "--bootstrap-server b:9092 --command-config admin.properties --"
	for name, c := range map[string]struct {
		opts          kafkaclient.Options
		at, principal string
	}{
		"plaintext":      {kafkaclient.Options{}, plain, "User:NAME "},
		"TLS":            {kafkaclient.Options{DialOptions: kafkaclient.DialOptions{TLS: overTLS}}, secure, "User:NAME "},
		"login":          {kafkaclient.Options{DialOptions: kafkaclient.DialOptions{SASL: login}}, secure, "User:relay "},
		"login over TLS": {kafkaclient.Options{DialOptions: kafkaclient.DialOptions{TLS: overTLS, SASL: login}}, secure, "User:relay "},
		"unreadable":     {kafkaclient.Options{DialOptions: kafkaclient.DialOptions{SASL: unreadable}}, secure, "User:NAME "},
	} {
		e := examination{opts: &c.opts, topicName: template, conn: &kafkaclient.Conn{Addr: "b:9092"}, cluster: new(metadata.Response)}
		if c.opts.SASL != nil {
			e.login, _ = c.opts.SASL(t.Context())
		}
		for _, command := range []string{e.grantCommand("t"), e.createCommand("t"), e.minInSyncCommand("t", 2), e.describeCommand("t")} {
			if !strings.Contains(command, c.at) {
				t.Errorf("%s: %s", name, command)
			}
		}
		if command := e.grantCommand("t"); !strings.Contains(command, "--allow-principal "+c.principal) {
			t.Errorf("%s: %s", name, command)
		}
	}
}

// A user that may write and not read repeats events after a crash, unless nothing is read back.
func TestMayNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		readBack bool
		rights   int32
		warns    bool
	}{
		"may not":       {true, 1<<writeOperation | 1<<8, true},
		"may":           {true, 1<<writeOperation | 1<<readOperation, false},
		"not told":      {true, 0, false},
		"no need of it": {false, 1 << writeOperation, false},
	} {
		e := examination{
			opts: new(kafkaclient.Options), layout: new(layout), topicName: sink.MustTemplate("t"), readBack: c.readBack,
			conn: &kafkaclient.Conn{Addr: "b:9092"}, cluster: new(metadata.Response),
		}
		f := e.checkTopic(&metadata.ResponseTopic{Name: "t", TopicAuthorizedOperations: c.rights, Partitions: []metadata.ResponsePartition{{ReplicaNodes: []int32{1}, IsrNodes: []int32{1}}}}, topicSettings{})
		if f.OK == c.warns || f.Warn != c.warns || strings.Contains(f.Detail, "may not read") != c.warns || strings.Contains(f.Fix, "--operation Read --topic t; or sink.kafka.read_back: false") != c.warns {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

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
		"token":               {oauthBearer, false, []string{away}, "the token crosses the network as it is"},
		"one of two":          {"plain", false, []string{here, away}, "as it is"},
		"plain over TLS":      {"plain", true, []string{away}, ""},
		"plain, this machine": {"plain", false, []string{here, "localhost:9092", "[::1]:9092"}, ""},
		"no login":            {"", false, []string{away}, ""},
	} {
		e := examination{opts: &kafkaclient.Options{Brokers: c.brokers}}
		if c.mechanism != "" {
			e.login = &kafkaclient.SASL{Mechanism: c.mechanism}
		}
		if c.tls {
			e.opts.TLS = func() (*tls.Config, error) { return new(tls.Config), nil }
		}
		found := e.checkLogin()
		switch {
		case len(found) != min(1, len(c.warns)):
			t.Errorf("%s: found %+v", name, found)
		case c.warns != "" && (!found[0].Warn || !strings.Contains(found[0].Detail, c.warns) || !strings.Contains(found[0].Fix, "sink.kafka.tls: {enabled: true}")):
			t.Errorf("%s: found %+v, want a warning with %q", name, found[0], c.warns)
		}
	}
}
