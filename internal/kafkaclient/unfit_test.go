package kafkaclient

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
)

// A broker that lacks what is asked for says so, or is asked for what it takes instead. One that
// only hangs up may be a proxy whose broker is away.
func TestUnfit(t *testing.T) {
	overTLS := func() (*tls.Config, error) { return &tls.Config{}, nil }
	hangUp := func(_ *fake, c net.Conn) { _, _ = c.Read(make([]byte, 1)) }
	banner := func(_ *fake, c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = c.Write([]byte("HTTP/1.0 503 Service Unavailable\r\n\r\n"))
	}
	greet := func(f *fake, c net.Conn) { f.greet(c); untilClosed(c) }
	alert := func(_ *fake, c net.Conn) { _, _ = c.Write([]byte{21, 3, 1, 0, 2, 2, 70, 0}); untilClosed(c) }
	cut := func(f *fake, c net.Conn) { f.greet(c); f.Next(c) }
	has := func(code int16) func(f *fake, c net.Conn) {
		return func(f *fake, c net.Conn) {
			f.greet(c)
			id, _ := f.Next(c)
			f.answer(c, 1, id, &saslhandshake.Response{ErrorCode: code, Mechanisms: []string{"PLAIN", "OAUTHBEARER"}})
			untilClosed(c)
		}
	}
	for name, c := range map[string]struct {
		opts    DialOptions
		scripts []func(*fake, net.Conn) // of one connection after the other
		kind    error                   // nil: it may pass
		want    string
	}{
		"TLS, plain port":    {DialOptions{TLS: overTLS}, []func(*fake, net.Conn){hangUp, greet}, ErrNoTLS, "the port takes no TLS"},
		"TLS, away":          {DialOptions{TLS: overTLS}, []func(*fake, net.Conn){hangUp, hangUp}, nil, "the port may take no TLS"},
		"TLS, banner, away":  {DialOptions{TLS: overTLS}, []func(*fake, net.Conn){banner, banner}, nil, "the port may take no TLS"},
		"TLS, banner, Kafka": {DialOptions{TLS: overTLS}, []func(*fake, net.Conn){banner, greet}, ErrNoTLS, "the port takes no TLS"},
		"TLS, cut":           {DialOptions{TLS: overTLS}, []func(*fake, net.Conn){hangUp, alert}, nil, "the port may take no TLS"},
		"plain, TLS port":    {DialOptions{}, []func(*fake, net.Conn){alert}, ErrWantsTLS, "the port expects TLS"},
		"login wanted":       {DialOptions{}, []func(*fake, net.Conn){cut, has(33)}, ErrWantsLogin, "the listener wants a login, it has PLAIN, OAUTHBEARER"},
		"no login wanted":    {DialOptions{}, []func(*fake, net.Conn){cut, has(34)}, nil, "as one does that wants a login"},
		"away":               {DialOptions{}, []func(*fake, net.Conn){cut, hangUp}, nil, "as one does that wants a login"},
		"zstd": {DialOptions{ProduceVersion: 7}, []func(*fake, net.Conn){func(f *fake, c net.Conn) {
			f.offers = append([]apiversions.ApiKeyResponse{{MinVersion: 3, MaxVersion: 5}}, f.offers[1:]...)
			greet(f, c)
		}}, ErrTooOld, "has Produce v3 to v5, needed is one of v7 to v8"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, c.scripts...)
			conn, err := Dial(t.Context(), &c.opts, f.addr)
			if err == nil {
				defer conn.Close()
				_, err = RoundTripAs[*metadata.Response](t.Context(), conn, longTimeout, &metadata.Request{})
			}
			if err == nil || isUnfit(err) != (c.kind != nil) || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q, unfit %v", err, c.want, c.kind != nil)
			}
		})
	}
}
