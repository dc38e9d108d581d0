package admin

import (
	"context"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// full is a listener whose first Accept finds the kernel short of memory.
type full struct {
	net.Listener
	failed chan struct{} // one place
}

func (f full) Accept() (net.Conn, error) {
	select {
	case f.failed <- struct{}{}:
		return nil, &net.OpError{Op: "accept", Err: syscall.ENOBUFS}
	default:
		return f.Listener.Accept()
	}
}

// A connection that cannot be accepted ends nothing: the relay would stop delivering for it.
func TestAcceptIsTriedAgain(t *testing.T) {
	failed := make(chan struct{}, 1)
	base := serve(t, func(*Config) {}, func(s *Server) {
		s.listener = full{s.listener, failed}
	})
	if code, _, _ := send(t, http.MethodGet, base+"/healthz", ""); code != 200 || len(failed) != 1 {
		t.Errorf("after an error it answers %d; errors: %d", code, len(failed))
	}
	broken := full{new(broken), make(chan struct{}, 1)}
	broken.failed <- struct{}{}
	if err := (&Server{cfg: Config{Log: zap.NewNop()}}).serve(context.Background(), &http.Server{}, broken); err == nil {
		t.Error("a closed listener is no error")
	}
}

// broken is a listener that is closed.
type broken struct{ net.Listener }

func (*broken) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (*broken) Close() error              { return nil }

// What net/http reports is logged, as a warning and once in a while.
func TestServerLog(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	var server http.Server
	logSparingly(&server, zap.New(core))
	for range 3 {
		server.ErrorLog.Print("http: TLS handshake error from 127.0.0.1:1: EOF")
	}
	if all := logs.All(); len(all) != 1 || all[0].Level != zap.WarnLevel || !strings.Contains(all[0].Message, "handshake") {
		t.Errorf("the log has %v", all)
	}
}
