package check

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
)

// What can be wrong with a connection has a fix of its own.
func TestFixDial(t *testing.T) {
	_, missing := os.Open("/nowhere/ca.pem")
	for want, err := range map[string]error{
		"firewall":                    &net.OpError{Op: "dial", Err: errors.New("refused")},
		"correct the path":            fmt.Errorf("sink.kafka.tls.ca: %w", missing),
		"what the port expects":       fmt.Errorf("open TLS: %w", io.EOF),
		"listener.security.protocol":  context.DeadlineExceeded,
		"what this line names":        errors.New("broker has no Produce request"),
		"check sink.kafka.sasl":       conn.ErrLogin,
		"set sink.kafka.sasl, or use": conn.ErrWantsLogin,
		"set sink.kafka.tls.enabled":  conn.ErrWantsTLS,
		"does not speak TLS":          tls.RecordHeaderError{},
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
	login := func() (*conn.SASL, error) {
		return &conn.SASL{Mechanism: "plain", Username: "relay", Password: "p"}, nil
	}
	unreadable := func() (*conn.SASL, error) { return nil, errors.New("no such file") }
	const plain, secure = "--bootstrap-server b:9092 --", "--bootstrap-server b:9092 --command-config admin.properties --"
	for name, c := range map[string]struct {
		opts          client.Options
		at, principal string
	}{
		"plaintext":      {client.Options{}, plain, "User:NAME "},
		"TLS":            {client.Options{Options: conn.Options{TLS: overTLS}}, secure, "User:NAME "},
		"login":          {client.Options{Options: conn.Options{SASL: login}}, secure, "User:relay "},
		"login over TLS": {client.Options{Options: conn.Options{TLS: overTLS, SASL: login}}, secure, "User:relay "},
		"unreadable":     {client.Options{Options: conn.Options{SASL: unreadable}}, secure, "User:NAME "},
	} {
		e := examination{opts: &c.opts, topicName: template, conn: &conn.Conn{Addr: "b:9092"}, cluster: new(metadata.Response)}
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
