package rabbit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// To an exchange that is internal nobody may publish: a 403 of the exchange, as without the right.
func TestInternalExchange(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	b.exchanges = append(b.exchanges, "internal")
	b.must(b.ch.ExchangeDeclare("internal", "topic", true, false, true, false, nil))
	s := start(t, byKey(b))
	got := findsPoison(t, b, s, func() *outbox.Event { return event("internal", "created") }, sink.Destination, sink.NotPermitted)
	if f := got[0].Fault; f.Destination != `exchange "internal"` || !f.Whole {
		t.Errorf("accused %+v", f)
	}
}

// An exchange whose type the broker does not know any more, as after a plugin was disabled: a 406 that names the exchange.
func TestExchangeOfADisabledPlugin(t *testing.T) {
	b := ownBroker(t)
	b.exchange("events", nil)
	b.exchange("special", nil)
	s := start(t, byKey(b))
	b.exchangeType("special", "of_a_plugin")
	poison := func() *outbox.Event { return event("special", "created") }
	got := findsPoison(t, b, s, poison, sink.Destination, sink.BrokerException)
	if f := got[0].Fault; !strings.HasPrefix(f.Words, "406 ") || !f.Whole || f.Destination != `exchange "special"` {
		t.Errorf("fault %+v", f)
	}
	b.exchangeType("special", "topic")
	wantConfirmed(t, s.send(poison()))
}

// What the broker fails over itself ends the connection with a 541, which names nobody: the message has to be searched for,
// and may go some other time.
func TestInternalError(t *testing.T) {
	b := ownBroker(t)
	b.exchange("events", nil)
	b.exchange("broken", nil)
	s := start(t, byKey(b))
	b.exchangeType("broken", "42") // no name of a type at all
	poison := func() *outbox.Event { return event("broken", "created") }
	got := findsPoison(t, b, s, poison, sink.Transient, sink.BrokerException)
	if f := got[0].Fault; !strings.HasPrefix(f.Words, "541 ") || f.Whole || f.Destination != `exchange "broken", routing key "created"` {
		t.Errorf("fault %+v", f)
	}
	again := poison()
	wantRejected(t, s.send(again)[0], sink.Transient, sink.BrokerException)
	b.exchangeType("broken", "topic")
	wantConfirmed(t, s.send(again))
}

// exchangeType overwrites the type of an exchange in the broker's memory.
func (b *broker) exchangeType(exchange, typ string) {
	b.t.Helper()
	b.ctl("eval", fmt.Sprintf(`{ok, X} = rabbit_exchange:lookup(rabbit_misc:r(<<"%s">>, exchange, <<"%s">>)), ok = mnesia:dirty_write(rabbit_exchange, setelement(3, X, %s)).`, b.vhost(), exchange, typ))
}

// A queue whose process dies with messages that it has not confirmed answers them with a nack, as a full one does.
func TestQueueDies(t *testing.T) {
	b := ownBroker(t)
	b.exchange("events", nil)
	b.exchange("dying", nil)
	cfg := byKey(b)
	cfg.ConfirmTimeout = within // rabbitmqctl may take long to kill the queue
	s := start(t, cfg)
	wantConfirmed(t, s.send(event("events", "created"), event("dying", "created")))
	b.suspend("dying")
	dying := event("dying", "created")
	done := make(chan []sink.Outcome, 1)
	go func() { done <- s.send(event("events", "created"), dying, event("events", "created")) }()
	until(t, "the others are stored", func() bool { return b.depth("events") == 3 })
	b.ctl("eval", fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"dying">>)), exit(amqqueue:get_pid(Q), kill).`, b.vhost()))
	outcomes := <-done
	wantConfirmed(t, outcomes, 1)
	wantRejected(t, outcomes[1], sink.Destination, sink.Nacked)
	if outcomes[1].Fault.Whole {
		t.Error("the whole exchange is accused")
	}
	until(t, "the queue is started again", func() bool { return s.send(dying)[0].State == sink.Confirmed })
}

// A virtual host that is deleted takes the connection with it, and accuses nobody: it is waited for, as the broker is.
func TestVirtualHostDeleted(t *testing.T) {
	root := ownBroker(t)
	b := connect(t, root.real, root.real.VHost(t))
	b.exchange("events", nil)
	s := start(t, b.config())
	wantConfirmed(t, s.send(event("k", "created")))
	name := b.vhost()
	root.ctl("delete_vhost", name)
	done := make(chan sink.Outcome, 1)
	go func() {
		for {
			outcomes, err := s.try(event("k", "created"))
			if err == nil {
				done <- outcomes[0]
				return
			}
		}
	}()
	until(t, "the login is refused", func() bool { up, why := s.Up(); return !up && strings.Contains(why, "virtual host") })
	select {
	case o := <-done:
		t.Fatalf("without a virtual host: %+v", o)
	default:
	}
	root.ctl("add_vhost", name)
	root.ctl("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
	again := connect(t, root.real, b.url)
	again.exchange("events", nil)
	if o := <-done; o.State != sink.Confirmed && (o.Fault == nil || o.Fault.Reason != sink.NoExchange) { // it may have come before the exchange
		t.Errorf("got %+v", o)
	}
	until(t, "all is well", func() bool { return s.send(event("k", "created"))[0].State == sink.Confirmed })
}
