package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"
)

func TestFixOfTLS(t *testing.T) {
	alert := func(number uint8) error {
		return &net.OpError{Op: "remote error", Err: tls.AlertError(number)}
	}
	for want, err := range map[string]error{
		"set sslrootcert":               x509.UnknownAuthorityError{},
		"as the host in source.url":     x509.HostnameError{Certificate: new(x509.Certificate), Host: "h"},
		"renew the server's":            x509.CertificateInvalidError{Cert: new(x509.Certificate), Reason: x509.Expired},
		"renew the client certificate":  alert(45),
		"a CA of the server's ssl_ca_f": alert(48),
	} {
		if got := fixTLS(fmt.Errorf("connect: %w", err)); !strings.Contains(got, want) {
			t.Errorf("of %v: %q, want %q", err, got, want)
		}
	}
	for _, err := range []error{errors.New("x"), &net.OpError{Op: "dial", Err: errors.New("refused")}} {
		if got := fixTLS(err); got != "" {
			t.Errorf("of %v: %q, want nothing", err, got)
		}
	}
}

// What is said of one trouble is the same at each try: it is logged once.
func TestSteadyWords(t *testing.T) {
	const refused = "connect to 127.0.0.1:5432: remote error: tls: unknown certificate authority"
	for _, c := range []struct{ says, steady string }{
		{"connect to 127.0.0.1:5432: failed to write startup message: write failed: remote error: tls: unknown certificate authority", refused},
		{"connect to 127.0.0.1:5432: failed to receive message: remote error: tls: unknown certificate authority", refused},
		{"failed to receive message: unexpected EOF", "failed to receive message: unexpected EOF"},
		{"read tcp 127.0.0.1:40000->127.0.0.1:5432: i/o timeout", "read tcp 127.0.0.1:5432: i/o timeout"},
		{"expired: current time 2026-11-23T00:00:00Z is after 2026-11-22T00:00:00Z", "expired: after 2026-11-22T00:00:00Z"},
	} {
		if got := StableText(c.says); got != c.steady {
			t.Errorf("%q became %q, want %q", c.says, got, c.steady)
		}
	}
}

// asksInClear is the address of somebody who answers in PostgreSQL's place and asks each connection
// for its password in clear text; what arrives is sent to passwords, "" when nothing does.
func asksInClear(t *testing.T) (address string, passwords <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	got := make(chan string, 8)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			askPassword(conn, got)
		}
	}()
	return listener.Addr().String(), got
}

func askPassword(conn net.Conn, got chan<- string) {
	defer conn.Close()
	server := pgproto3.NewBackend(conn, conn)
	if _, err := server.ReceiveStartupMessage(); err != nil {
		return // no login: pgx cancels what it has given up
	}
	server.Send(&pgproto3.AuthenticationCleartextPassword{})
	if server.Flush() != nil || server.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
		return
	}
	answer, err := server.Receive()
	password, sent := answer.(*pgproto3.PasswordMessage)
	if err != nil || !sent {
		got <- "" // it has hung up
		return
	}
	got <- password.Password
}

// With require_auth no connection of the relay gives its password to whoever asks for it; without,
// each does, which is what check warns of.
func TestRequireAuthHoldsForEveryConnection(t *testing.T) {
	address, passwords := asksInClear(t)
	for settings, want := range map[string]string{
		"sslmode=disable": "pgsecret",
		"sslmode=disable&require_auth=scram-sha-256":  "",
		"sslmode=disable&channel_binding=require":     "",
		"sslmode=disable&require_auth=!password,!md5": "",
	} {
		c := Config{
			URL: "postgres://relay@" + address + "/shop?" + settings, Slot: "cdc_relay", Log: zap.NewNop(),
			Password: func(context.Context) (string, error) { return "pgsecret", nil },
		}
		for what, connect := range map[string]func() error{
			"pool": func() error {
				pool, err := ConnectPool(&c)
				if err != nil {
					return err
				}
				defer ClosePool(pool)
				return pool.Ping(context.Background())
			},
			"stream": func() error {
				_, err := ConnectStream(context.Background(), &c)
				return err
			},
		} {
			err := connect()
			if got := <-passwords; got != want || err == nil || strings.Contains(err.Error(), "pgsecret") {
				t.Errorf("%s, %s: sent %q, want %q: %v", what, settings, got, want, err)
			}
		}
	}
}

// The reader of the stream has the socket under it: without one it cannot wait for many bytes, and
// is woken for each.
func TestReaderHasItsSocket(t *testing.T) {
	address, passwords := asksInClear(t)
	c := Config{URL: "postgres://relay:pgsecret@" + address + "/shop?sslmode=disable", Slot: "cdc_relay", Log: zap.NewNop()}
	var socket syscall.RawConn
	_, err := ConnectReplication(t.Context(), &c, func(r io.Reader, sock syscall.RawConn) io.Reader {
		socket = sock
		return r
	})
	if <-passwords; err == nil || socket == nil {
		t.Errorf("the socket is %v, %v", socket, err)
	}
}
