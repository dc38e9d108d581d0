package rabbit

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// To an exchange that is internal nobody may publish: a 403 of the exchange, as without the right.
func TestInternalExchange(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	b.exchanges = append(b.exchanges, "internal")
	b.must(b.ch.ExchangeDeclare("internal", "topic", true, false, true, false, nil))
	s := start(t, byKey(b))
	got := findsPoison(t, b, s, func() *event.Event { return newEvent("internal", "created") }, sink.Destination, sink.NotPermitted)
	if f := got[0].Fault; f.Destination != `exchange "internal"` || !f.Whole {
		t.Errorf("accused %+v", f)
	}
}

// A virtual host that is deleted takes the connection with it, and accuses nobody: it is waited
// for, as the broker is.
func TestVirtualHostDeleted(t *testing.T) {
	real := servers.SharedRabbitMQ(t)
	b := connect(t, real, real.VHost(t))
	b.exchange("events", nil)
	s := start(t, b.config())
	wantConfirmed(t, s.send(newEvent("k", "created")))
	b.must(real.DropVHost(b.ctx, b.url))
	done := make(chan sink.Outcome, 1)
	go func() {
		for {
			outcomes, err := s.try(newEvent("k", "created"))
			if err == nil {
				done <- outcomes[0]
				return
			}
		}
	}()
	await.Until(t, "the login is refused", func() bool { up, why := s.Up(); return !up && strings.Contains(why, "virtual host") })
	select {
	case o := <-done:
		t.Fatalf("without a virtual host: %+v", o)
	default:
	}
	b.must(real.RestoreVHost(b.ctx, b.url))
	again := connect(t, real, b.url)
	again.exchange("events", nil)
	// it may have come before the exchange
	if o := <-done; o.State != sink.Confirmed && (o.Fault == nil || o.Fault.Reason != sink.NoExchange) {
		t.Errorf("got %+v", o)
	}
	await.Until(t, "all is well", func() bool { return s.send(newEvent("k", "created"))[0].State == sink.Confirmed })
}
