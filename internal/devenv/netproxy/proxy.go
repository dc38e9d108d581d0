// Package netproxy is a TCP proxy that delays, holds, cuts, resets or alters what passes.
package netproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// Direction is one of the two ways through a Proxy.
type Direction int

// Up is from the client to the server, Down from the server to the client.
const (
	Up Direction = iota
	Down
)

// Proxy is a TCP proxy on 127.0.0.1 that breaks connections on purpose. Bytes of a connection never
// overtake each other, and never change unless Spoil or HideProcessIDs asks for it. All methods may
// be called at any time from any goroutine; what they set holds for the open connections and for
// new ones.
//
// A connection that ends while its bytes are kept back ends on the other side only after these:
// what a killed client had sent still arrives at the server after Release. Reset or Cut throws it
// away.
type Proxy struct {
	addr string
	ways [2]*way // indexed by Direction

	mu       sync.Mutex
	target   string
	listener *net.TCPListener // nil while cut
	conns    map[*proxyConn]struct{}
	stalled  chan struct{} // closed when connections are not stalled
	closed   bool
	report   func(flush pglogrepl.LSN) // see WatchReports; nil: nobody watches
	spoil    []byte                    // see Spoil; nil: nothing
	hideIDs  bool                      // see HideProcessIDs
	wg       sync.WaitGroup
}

// Start listens on a free port and forwards connections to target (host:port).
func Start(target string) (*Proxy, error) {
	listener, err := processes.ListenFree()
	if err != nil {
		return nil, err
	}
	return newProxy(listener, target), nil
}

// StartProxyAt is Start at a given address.
func StartProxyAt(addr, target string) (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", addr)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	return newProxy(listener.(*net.TCPListener), target), nil
}

func newProxy(listener *net.TCPListener, target string) *Proxy {
	p := &Proxy{addr: listener.Addr().String(), target: target, conns: map[*proxyConn]struct{}{}, stalled: make(chan struct{})}
	close(p.stalled)
	for i := range p.ways {
		p.ways[i] = &way{changed: make(chan struct{})}
	}
	p.serve(listener)
	return p
}

// Addr is where clients connect, host:port. It stays the same through Cut and Restore.
func (p *Proxy) Addr() string { return p.addr }

// SetTarget changes where new connections go.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Connections is how many connections are open.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Hold keeps back every byte of the direction that its sender sends after Hold has returned, at
// most 64 MiB for each connection; beyond that the sender is not read any more.
func (p *Proxy) Hold(d Direction) { p.ways[d].set(func(w *way) { w.held, w.heldSum = true, 0 }) }

// Release lets go what Hold keeps back, in order.
func (p *Proxy) Release(d Direction) { p.ways[d].set(func(w *way) { w.held = false }) }

// HeldBytes is how many bytes of the direction were kept back since Hold.
func (p *Proxy) HeldBytes(d Direction) int64 {
	w := p.ways[d]
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heldSum
}

// WaitHeld returns when at least n bytes of the direction were kept back since Hold.
func (p *Proxy) WaitHeld(ctx context.Context, d Direction, n int64) error {
	w := p.ways[d]
	for {
		w.mu.Lock()
		sum, changed := w.heldSum, w.changed
		w.mu.Unlock()
		if sum >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d bytes held, have %d: %w", n, sum, context.Cause(ctx))
		}
	}
}

// Delay makes every byte arrive d later in each direction, without limiting how many are under way:
// a round trip becomes 2·d longer. It holds for bytes read afterwards.
func (p *Proxy) Delay(d time.Duration) {
	for _, w := range p.ways {
		w.set(func(w *way) { w.delay = d })
	}
}

// Trickle lets at most bytesPerSecond through each direction of each connection; 0 ends it.
func (p *Proxy) Trickle(bytesPerSecond int) {
	for _, w := range p.ways {
		w.set(func(w *way) { w.rate = bytesPerSecond })
	}
}

// Stall accepts connections but neither reads nor forwards anything, as a host that has frozen,
// until Restore. A chunk that is being forwarded may still pass.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stalled:
		p.stalled = make(chan struct{})
	default:
	}
}

// Cut closes all connections, throwing away what is under way in them, and refuses new ones until
// Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	listener := p.listener
	p.listener = nil
	p.mu.Unlock()
	if listener != nil {
		listener.Close()
	}
	p.drop(false)
}

// Reset ends all connections with a TCP reset on both sides, throwing away what is under way in
// them. New ones are accepted.
func (p *Proxy) Reset() { p.drop(true) }

// Restore ends Cut and Stall.
func (p *Proxy) Restore() error {
	p.mu.Lock()
	cut := p.listener == nil && !p.closed
	select {
	case <-p.stalled:
	default:
		close(p.stalled)
	}
	p.mu.Unlock()
	if !cut {
		return nil
	}
	listener, err := net.Listen("tcp4", p.addr)
	if err != nil {
		return fmt.Errorf("restore proxy: %w", err)
	}
	p.serve(listener.(*net.TCPListener))
	return nil
}

// Close ends the proxy and all its connections, and returns when its goroutines have ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut() // wakes what is stalled, too
	p.wg.Wait()
}

func (p *Proxy) serve(listener *net.TCPListener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = listener
	p.wg.Go(func() {
		for {
			client, err := listener.AcceptTCP()
			if err != nil {
				return // closed by Cut
			}
			p.wg.Go(func() { p.handle(listener, client) })
		}
	})
}

// handle is one connection. It is dropped at once when the proxy was cut since it was accepted.
func (p *Proxy) handle(accepted *net.TCPListener, client *net.TCPConn) {
	c := &proxyConn{proxy: p, client: client, gone: make(chan struct{})}
	p.mu.Lock()
	if p.listener != accepted {
		p.mu.Unlock()
		client.Close()
		return
	}
	p.conns[c] = struct{}{}
	target, report, spoil, hideIDs := p.target, p.report, p.spoil, p.hideIDs
	p.mu.Unlock()
	c.run(target, report, spoil, hideIDs)
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

func (p *Proxy) drop(reset bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.close(reset)
	}
}
