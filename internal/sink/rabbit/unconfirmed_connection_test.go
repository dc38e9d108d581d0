package rabbit

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// slowBroker is a confirm timeout that a broker on a loaded machine keeps: it has half of it to
// answer a question.
const slowBroker = 4 * time.Second

// When nothing on the connection is confirmed nobody is accused: the connection is given up, and
// the event in doubt.
func TestNothingConfirmed(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	proxy := startProxy(t, b.real.Addr())
	cfg := b.config()
	cfg.URLs, cfg.ConfirmTimeout = []string{b.through(proxy)}, slowBroker
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("k", "created")))
	proxy.Hold(netproxy.Down)
	outcomes, err := s.try(events(5, "created")...)
	if err == nil {
		t.Fatal("no error")
	}
	for _, o := range outcomes {
		if o.State != sink.Unknown {
			t.Errorf("%s %v", o.State, o.Fault)
		}
	}
	proxy.Release(netproxy.Down)
	wantConfirmed(t, s.send(newEvent("k", "created")))
}
