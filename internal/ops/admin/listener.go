// Serving one listener, within its bounds.

package admin

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// writeBound is how long an answer may take, from the request on.
const writeBound = 30 * time.Second

// newHTTP is a server of its own for one listener, with bounds of its own.
func (s *Server) newHTTP(handler http.Handler, connected func(context.Context, net.Conn) context.Context) *http.Server {
	open := &connections{open: map[net.Conn]*list.Element{}}
	server := &http.Server{
		Handler:           open.serve(handler),
		ConnState:         open.state,
		ConnContext:       connected,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      writeBound,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    32 << 10,
	}
	logSparingly(server, s.cfg.Log)
	return server
}

// closeTimeout is how long requests may take to end after ctx is done.
const closeTimeout = time.Second

// serve serves one listener until ctx is done, and returns nil then.
func (s *Server) serve(ctx context.Context, server *http.Server, l net.Listener) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if server.Shutdown(within) != nil {
			_ = server.Close() //nolint:errcheck // requests that do not end are cut
		}
	})
	err := server.Serve(patient{l})
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// patient accepts again after an error, such as no memory of the kernel: delivery does not end for
// it.
type patient struct{ net.Listener }

// Accept implements net.Listener.
func (p patient) Accept() (net.Conn, error) {
	for {
		conn, err := p.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		time.Sleep(acceptAgain)
	}
}

const acceptAgain = 100 * time.Millisecond
