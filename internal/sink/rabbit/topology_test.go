package rabbit

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// listing has two queues in the list: one that is there, and one that is made with its arguments.
func listing(b *broker) Config {
	b.queues = append(b.queues, "made")
	b.queue("there", amqp.Table{"x-max-length": 1000})
	cfg := b.config()
	cfg.Bindings = []Binding{{Queue: "there", Key: "#"}, {Queue: "made", Key: "created", Arguments: []setting.NamedColumn{{Name: "x-max-length", Column: "10"}}}}
	return cfg
}

// Queues that are listed are bound before the first event goes, and again before a paused exchange
// resumes: they have all of it, without an operator.
func TestBindings(t *testing.T) {
	b := newBroker(t)
	cfg := listing(b)
	b.bare("events", "topic")
	wantFinding(t, Check(b.ctx, cfg), `queue "there"`, true, "exists", "")
	wantFinding(t, Check(b.ctx, cfg), `queue "made"`, true, "is missing; it is declared", "")
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("k", "created"), newEvent("l", "other")))
	b.take("there", 2)
	b.take("made", 1)
	_, err := b.channel().QueueDeclare("made", true, false, false, false, amqp.Table{"x-max-length": int64(10)})
	b.must(err)

	for what, breaks := range map[string]func(){
		"the exchange is deleted": func() { b.must(b.ch.ExchangeDelete("events", false, false)) },
		"the queues are deleted": func() {
			for _, queue := range []string{"there", "made"} {
				_, err := b.ch.QueueDelete(queue, false, false, false)
				b.must(err)
			}
		},
	} {
		breaks()
		ev := newEvent("k", "created")
		o := s.send(ev)[0]
		if o.State != sink.Rejected || o.Fault.Held != "" {
			t.Fatalf("%s: %s %+v", what, o.State, o.Fault)
		}
		b.must(b.ch.ExchangeDeclare("events", "topic", true, false, false, false, nil))
		if o := s.probe(ev, false); o.State != sink.Confirmed {
			t.Fatalf("%s: a probe is %s %+v", what, o.State, o.Fault)
		}
		b.take("there", 1)
		b.take("made", 1)
	}
	if s.Held(sink.ExchangeOrTopicOf([]byte("another"))) == "" || s.Held(sink.ExchangeOrTopicOf([]byte("events"))) != "" {
		t.Error("an exchange that is not listed must be held, and no other")
	}
}

// While a listed queue cannot be bound nothing goes to the exchange, and everything once it can: it
// misses nothing. Other exchanges do not wait.
func TestBindingRefused(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	b.exchange("other", nil)
	cfg := listing(b)
	cfg.Bindings = cfg.Bindings[1:] // the one to be made
	user := b.user("", ".*", ".*")
	cfg.URLs = []string{user}
	s := start(t, cfg)
	elsewhere := newEvent("k", "created")
	elsewhere.Route = &event.Route{Name: []byte("other"), RoutingKey: []byte("created")}
	ev := newEvent("k", "created")
	outcomes := s.send(ev, elsewhere)
	wantRejected(t, outcomes[0], sink.Destination, sink.NotPermitted)
	if f := outcomes[0].Fault; !f.Whole || f.Held != "" || f.Destination != `exchange "events"` {
		t.Errorf("%+v", f)
	}
	wantConfirmed(t, outcomes[1:])
	wantRejected(t, s.probe(ev, false), sink.Destination, sink.NotPermitted)
	if n := b.depth("events"); n != 0 {
		t.Errorf("%d events went to the exchange", n)
	}
	b.must(b.real.Permit(b.ctx, user, ".*", ".*", ".*"))
	first := s.firstSession() // a channel may remember its rights
	first.Kill(errors.New("cut"))
	<-first.Gone
	wantConfirmed(t, []sink.Outcome{s.probe(ev, false)})
	wantConfirmed(t, s.send(newEvent("k", "created")))
	b.take("made", 2)
}

// A return that is ignored confirms with its ack alone, of the exchanges that are named.
func TestIgnoredReturn(t *testing.T) {
	b := newBroker(t)
	b.bare("dropping", "topic")
	b.bare("bare", "topic")
	cfg := byKey(b)
	cfg.Unroutable = Unroutable{{"d*", true}, {"*", false}}
	s := start(t, cfg)
	outcomes := s.send(newEvent("dropping", "created"), newEvent("bare", "created"))
	wantConfirmed(t, outcomes, 1)
	wantRejected(t, outcomes[1], sink.Destination, sink.Unroutable)
	if n := s.Status().Ignored; n != 1 {
		t.Errorf("%d returns are ignored, want 1", n)
	}

	// A return alone confirms nothing: its ack came after the answers were read, and is not used.
	l := s.lanes[0]
	doubt := make([]sink.Outcome, 1)
	l.beginCall([]*event.Event{newEvent("dropping", "created")}, doubt)
	ch, err := l.openChannel(b.ctx)
	b.must(err)
	l.sendRound(b.ctx, ch)
	<-l.sent[0].answer.Done()
	returned, err := l.returnedEvents(ch)
	b.must(err)
	l.setOutcomes(ch, returned)
	if doubt[0].State != sink.Unknown || s.Status().Ignored != 2 {
		t.Errorf("returned, and its answer was not read: %s, %d ignored", doubt[0].State, s.Status().Ignored)
	}
	b.must(l.resolveRound(ch))
	wantConfirmed(t, doubt)
	l.endCall()
}
