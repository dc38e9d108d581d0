package rabbit

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	rabbitconn "github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// guise is a way to the broker on which it says that it is of some cluster, as another broker
// behind the same address would.
type guise struct {
	url string

	mu    sync.Mutex
	name  string // "": it says nothing of a cluster
	conns map[net.Conn]struct{}
	calls int // connections so far
}

// as opens a way to the broker.
func (b *broker) as(name string) *guise {
	b.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	u, err := url.Parse(b.url)
	b.must(err)
	u.Host = listener.Addr().String()
	g := &guise{url: u.String(), name: name, conns: map[net.Conn]struct{}{}}
	var work sync.WaitGroup
	b.t.Cleanup(func() {
		listener.Close()
		g.becomes("")
		work.Wait()
	})
	work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed above
			}
			work.Go(func() { g.serve(b, client) })
		}
	})
	return g
}

// addr is host:port of the way.
func (g *guise) addr() string {
	u, _ := url.Parse(g.url)
	return u.Host
}

// becomes gives the broker another name, and ends the connections.
func (g *guise) becomes(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.name = name
	for conn := range g.conns {
		conn.Close()
	}
}

// called is how often it was connected to.
func (g *guise) called() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

// serve is one connection.
func (g *guise) serve(b *broker, client net.Conn) {
	defer client.Close()
	g.mu.Lock()
	name := g.name
	g.conns[client] = struct{}{}
	g.calls++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.conns, client)
	}()
	server, err := net.Dial("tcp", b.real.Addr())
	if err != nil {
		b.t.Error(err)
		return
	}
	defer server.Close()
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		defer client.Close()
		start := make([]byte, 7) // the first frame: type, channel, length
		if _, err := io.ReadFull(server, start); err != nil {
			return // the client has hung up
		}
		start = slices.Concat(start, make([]byte, binary.BigEndian.Uint32(start[3:])+1))
		if _, err := io.ReadFull(server, start[7:]); err != nil {
			return
		}
		if _, err := client.Write(renamed(start, name)); err == nil {
			_, _ = io.Copy(client, server)
		}
	})
	_, _ = io.Copy(server, client)
	server.Close()
}

// renamed is the frame of a connection.start with another name of the cluster: the text, the table
// around it and the frame have their lengths in front.
func renamed(start []byte, name string) []byte {
	key := []byte("\x0ccluster_nameS")
	at := bytes.Index(start, key)
	if name == "" {
		start[at+1] = 'k'
		return start
	}
	at += len(key)
	old := int(binary.BigEndian.Uint32(start[at:]))
	out := slices.Concat(start[:at], binary.BigEndian.AppendUint32(nil, uint32(len(name))), []byte(name), start[at+4+old:])
	for _, length := range []int{3, 7 + 6} {
		binary.BigEndian.PutUint32(out[length:], binary.BigEndian.Uint32(out[length:])+uint32(len(name)-old))
	}
	return out
}

// The address leads to a broker of another cluster, as behind a name or a proxy that has two.
// Nothing is sent to it, nothing is rejected, and all goes on when the address leads back, or when
// the relay is started again.
func TestOtherCluster(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	way := b.as("blue")
	cfg := b.config()
	cfg.URLs, cfg.Connections = []string{way.url}, 2
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("k", "created")))

	way.becomes("green")
	want := "a broker of another cluster: " + way.addr() + " is of cluster green, the relay has begun with blue at " + way.addr()
	await.Until(t, "every connection is refused", func() bool {
		for _, l := range s.links {
			l.Mu.Lock()
			why := l.Why
			l.Mu.Unlock()
			if !strings.HasPrefix(why, want) || !strings.Contains(why, "restart the relay") {
				return false
			}
		}
		return true
	})
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	waits, outcomes, ended := events(10, "created"), make([]sink.Outcome, 10), make(chan error, 1)
	go func() { ended <- s.Publish(ctx, 1, waits, outcomes) }()
	before := way.called()
	await.Until(t, "both have tried again", func() bool { return way.called() > before+3 || len(ended) > 0 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("publish: %v", err)
	}
	for i, o := range outcomes {
		if o.State != sink.Unsent {
			t.Errorf("event %d: %s %v", i, o.State, o.Fault)
		}
	}
	if n := b.depth("events"); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}

	restarted := start(t, cfg)
	wantConfirmed(t, restarted.send(newEvent("k", "created")))
	restarted.end()
	way.becomes("blue")
	wantConfirmed(t, s.send(waits...))
	await.Until(t, "up", func() bool { up, _ := s.Up(); return up })
}

// Of a list with addresses of two clusters all connections lead to one, those that search for a
// poison event, too. The other address is logged, once, and check finds it at fault.
func TestListOfTwoClusters(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	blue, green := b.as("blue"), b.as("green")
	core, lines := observer.New(zap.InfoLevel)
	cfg := b.config()
	cfg.URLs, cfg.Connections, cfg.Lanes, cfg.Log = []string{blue.url, green.url}, 4, 4, zap.New(core)
	s := start(t, cfg)
	for lane := range 4 {
		outcomes := make([]sink.Outcome, 1)
		b.must(s.Publish(b.ctx, lane, []*event.Event{newEvent("k", "created")}, outcomes))
		wantConfirmed(t, outcomes)
	}
	first, err := s.links[0].Session(b.ctx)
	b.must(err)
	served := first.Address
	logged := lines.FilterMessage("broker address skipped: it leads to another cluster")
	await.Until(t, "a line about the other address", func() bool {
		sess, err := s.Dial(b.ctx, nil)
		b.must(err)
		sess.Close(rabbitconn.CloseTimeout)
		if sess.Address != served {
			t.Fatalf("connected to %s and to %s", served, sess.Address)
		}
		logged = lines.FilterMessage("broker address skipped: it leads to another cluster")
		return logged.Len() > 0
	})
	if reason := logged.All()[0].ContextMap()["reason"].(string); !strings.Contains(reason, "lead to that cluster") || logged.Len() > 1 {
		t.Errorf("%d lines, %s", logged.Len(), reason)
	}
	for i, l := range s.links {
		l.Mu.Lock()
		if l.Sess == nil || l.Sess.Address != served {
			t.Errorf("connection %d is not to %s", i, served)
		}
		l.Mu.Unlock()
	}
	found := Check(b.ctx, cfg)
	wantFinding(t, found, "broker", true, blue.addr(), "")
	wantFinding(t, found, "broker", false, green.addr()+" is of cluster green, the relay has begun with blue", "lead to that cluster")
	for _, f := range found {
		if f.Warn {
			t.Errorf("no more than a warning: %+v", f)
		}
	}
}

// Nodes of a cluster that has no name send their own. They cannot be distinguished from two brokers
// that are no cluster: both are taken, a line says so once, and check warns.
func TestNodesWithoutACluster(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	first, second := b.as("rabbit@first"), b.as("rabbit@second")
	core, lines := observer.New(zap.InfoLevel)
	cfg := b.config()
	cfg.URLs, cfg.Log = []string{first.url, second.url}, zap.New(core)
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("k", "created")))
	reached := map[string]bool{}
	await.Until(t, "both are connected to", func() bool {
		sess, err := s.Dial(b.ctx, nil)
		b.must(err)
		sess.Close(rabbitconn.CloseTimeout)
		reached[sess.Address] = true
		return len(reached) == 2
	})
	logged := lines.FilterMessage("broker has no cluster name")
	if logged.Len() != 1 || !strings.Contains(logged.All()[0].ContextMap()["reason"].(string), "set_cluster_name") {
		t.Errorf("logged %+v", logged.All())
	}
	found := Check(b.ctx, cfg)
	wantFinding(t, found, "broker", false, "is node rabbit@second", "rabbitmqctl set_cluster_name")
	for _, f := range found {
		if !f.OK && !f.Warn {
			t.Errorf("more than a warning: %+v", f)
		}
	}
}

// A broker that does not name its cluster is taken, also after others did, and settles nothing. A
// name that somebody has set is not that of a cluster without one.
func TestNamelessCluster(t *testing.T) {
	b := newBroker(t)
	way := b.as("")
	for _, names := range []string{
		"; blue; ; !green; !rabbit@node; blue", "rabbit@node; ; rabbit@other; !blue; rabbit@node",
	} {
		s, err := New(b.config())
		b.must(err)
		for name := range strings.SplitSeq(names, "; ") {
			name, refused := strings.CutPrefix(name, "!")
			way.becomes(name)
			sess, err := s.dialer.DialOne(b.ctx, way.url)
			if errors.Is(err, errOtherCluster) != refused || (err != nil) != refused {
				t.Errorf("%q of %q: %v", name, names, err)
			}
			if err == nil {
				sess.Follow()
				sess.Close(rabbitconn.CloseTimeout)
			}
		}
	}
}
