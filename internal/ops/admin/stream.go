// The stream of server-sent events that the console listens to: the status each second, and what is
// new in the history.

package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/printable"
)

const (
	streamPath = "/api/v1/stream"

	// how often the status is looked at, for the history and the listeners
	lookEvery    = time.Second
	maxListeners = 32
	// messages that wait for one listener; all listeners share their bytes
	listenerQueue = 16
	listenerBound = 10 * time.Second // for one write to a listener
	// recheckEvery is how often a listener gets a sign of life, and its token is checked again.
	recheckEvery = 15 * time.Second
)

// listeners are the clients that read the stream.
type listeners struct {
	mu sync.Mutex
	// a closed channel means that the listener was dropped, or that the relay stops
	of    map[chan []byte]bool
	ended bool
}

// join returns what the next messages come through, or why there is none.
func (l *listeners) join() (messages chan []byte, refused string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended:
		return nil, "the relay is stopping"
	case len(l.of) == maxListeners:
		return nil, fmt.Sprintf("%d listeners read the stream already: close one, or read /api/v1/status", maxListeners)
	}
	if l.of == nil {
		l.of = map[chan []byte]bool{}
	}
	messages = make(chan []byte, listenerQueue)
	l.of[messages] = true
	return messages, ""
}

func (l *listeners) leave(messages chan []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, messages)
}

func (l *listeners) present() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of) > 0
}

// send gives a message to all listeners, and drops a listener whose queue is full: it waits for
// nobody.
func (l *listeners) send(message []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for messages := range l.of {
		select {
		case messages <- message:
		default:
			delete(l.of, messages)
			close(messages)
		}
	}
}

// end drops all listeners when the relay stops; after that join adds no more.
func (l *listeners) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for messages := range l.of {
		close(messages)
	}
	l.of = nil
}

// lookAround looks at the status each second until ctx is done. It adds the status to the history
// and sends it to the listeners, so that many of them cost no more than one.
func (s *Server) lookAround(ctx context.Context) {
	defer s.listeners.end()
	tick := time.NewTicker(s.lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		status := s.Status()
		point, marks := s.cfg.History.Look(&status)
		if !s.listeners.present() {
			continue
		}
		s.listeners.send(serverSent("status", &status))
		if point != nil {
			s.listeners.send(serverSent("point", point))
		}
		for i := range marks {
			s.listeners.send(serverSent("mark", &marks[i]))
		}
	}
}

// serverSent encodes an event of the stream, with its body as JSON on one line.
func serverSent(name string, body any) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "event: %s\ndata: ", name)
	_ = json.NewEncoder(printable.JSON(&out)).Encode(body) //nolint:errcheck // a buffer takes everything
	out.WriteByte('\n')
	return out.Bytes()
}

// stream answers with the stream for as long as the client reads. The server's timeouts are for
// answers that end, so each write has a deadline of its own.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	messages, refused := s.listeners.join()
	if refused != "" {
		w.Header().Set("Retry-After", "5")
		writeProblem(w, http.StatusServiceUnavailable, refused)
		return
	}
	defer s.listeners.leave(messages)
	if in, is := r.Context().Value(openKey{}).(inWork); is {
		in.of.working(in.conn, true)
		defer in.of.working(in.conn, false)
	}
	client := http.NewResponseController(w)
	write := func(message []byte) bool {
		_ = client.SetWriteDeadline(time.Now().Add(listenerBound)) //nolint:errcheck // the server's connections have one
		_, err := w.Write(message)
		return err == nil && client.Flush() == nil
	}
	_ = client.SetReadDeadline(time.Time{}) //nolint:errcheck // else the request ends with the server's ReadTimeout
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx in between passes it on at once
	if r.Method == http.MethodHead {
		return
	}
	status := s.Status()
	if !write(append([]byte("retry: 2000\n\n"), serverSent("status", &status)...)) {
		return
	}
	recheck := time.NewTicker(s.recheckEvery)
	defer recheck.Stop()
	for {
		select {
		case message, open := <-messages:
			if !open || !write(message) {
				return
			}
		case <-recheck.C:
			if s.callerOf(r).may < reader || !write([]byte(": heartbeat\n\n")) {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
