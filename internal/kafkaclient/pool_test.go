package kafkaclient

import (
	"errors"
	"net"
	"testing"
)

// TestPoolHangsUp: a question that a broker does not answer ends the idle connections to it, too.
func TestPoolHangsUp(t *testing.T) {
	p := NewPool(DialOptions{})
	defer p.Close()
	var conns []*Conn
	for range 3 {
		conns = append(conns, newFake(t, func(f *fake, c net.Conn) {
			f.greet(c)
			untilClosed(c)
		}).dial())
	}
	const frozen, other = "frozen:9092", "other:9092"
	conns[0].Addr, conns[1].Addr, conns[2].Addr = frozen, frozen, other
	p.idle[frozen], p.idle[other] = conns[:2:2], conns[2:]
	failed := errors.New("no answer")
	if err := p.withConn(t.Context(), frozen, func(*Conn) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("the question: %v", err)
	}
	if conns[0].Usable() || conns[1].Usable() || len(p.idle[frozen]) > 0 {
		t.Errorf("%d connections to the broker are kept", len(p.idle[frozen]))
	}
	if !conns[2].Usable() || len(p.idle[other]) != 1 {
		t.Error("another broker's connection is not kept")
	}
}
