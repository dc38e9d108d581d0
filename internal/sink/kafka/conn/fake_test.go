package conn

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
)

// fake is a broker that a test scripts, for what a real one cannot be made to do. Its script has
// one connection.
type fake struct {
	testing.TB
	addr   string
	opts   Options
	offers []apiversions.ApiKeyResponse
	gone   chan struct{} // closed when the script has ended
}

func newFake(t testing.TB, script func(f *fake, c net.Conn)) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{TB: t, addr: l.Addr().String(), gone: make(chan struct{}), offers: []apiversions.ApiKeyResponse{
		{ApiKey: int16(protocol.Produce), MinVersion: 3, MaxVersion: 13},
		{ApiKey: int16(protocol.Metadata), MaxVersion: 13},
		{ApiKey: int16(protocol.InitProducerId), MaxVersion: 5},
		{ApiKey: int16(protocol.SaslHandshake), MaxVersion: 1},
		{ApiKey: int16(protocol.SaslAuthenticate), MaxVersion: 2},
	}}
	go func() {
		defer close(f.gone)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		script(f, c)
	}()
	t.Cleanup(func() {
		l.Close()
		<-f.gone
	})
	return f
}

// dial connects to the fake, for the test.
func (f *fake) dial() *Conn {
	f.Helper()
	c, err := Dial(context.Background(), &f.opts, f.addr)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(c.Close) // before the fake's own, which waits for its script
	return c
}

// Next is the next request, nil when the connection is closed.
func (f *fake) Next(c net.Conn) (id int32, req protocol.Message) {
	_, id, _, req, err := protocol.ReadRequest(c)
	if err != nil {
		return 0, nil
	}
	return id, req
}

func (f *fake) answer(c net.Conn, version int16, id int32, res protocol.Message) {
	if err := protocol.WriteResponse(c, version, id, res); err != nil {
		f.Error(err)
	}
}

// greet answers the first request, which is for the versions.
func (f *fake) greet(c net.Conn) {
	id, req := f.Next(c)
	if _, ok := req.(*apiversions.Request); !ok {
		f.Errorf("the first request is a %T", req)
		return
	}
	f.answer(c, 0, id, &apiversions.Response{ApiKeys: f.offers})
}

// untilClosed waits until the client has closed the connection.
func untilClosed(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
