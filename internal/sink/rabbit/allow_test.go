package rabbit

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// bounded is a sink that is connected to nothing, with patterns.
func bounded(t *testing.T, exchange, routingKey string, allow Allow) *Sink {
	t.Helper()
	s, err := New(Config{Exchange: tpl(t, exchange), RoutingKey: tpl(t, routingKey), Allow: allow, Lanes: 1})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var ordersOnly = Allow{Exchange: sink.Allow{"orders", "dead"}, RoutingKey: sink.Allow{"order.*", "k"}}

// What no pattern allows is refused before the broker is asked, and although there is none: new
// events, rows with a route, replays, copies and probes alike.
func TestNotAllowed(t *testing.T) {
	to := func(exchange, routingKey string) *event.Route {
		return &event.Route{Name: []byte(exchange), RoutingKey: []byte(routingKey)}
	}
	for name, c := range map[string]struct {
		exchange, routingKey string // templates; the key is made[0], the type made[1]
		made                 [2]string
		spoil                func(*event.Event)
		destination, text    string // "": it is allowed
		whole                bool
	}{
		"allowed":         {"{key}", "{type}", [2]string{"orders", "order.placed"}, nil, "", "", false},
		"exchange":        {"{column:c}", "{type}", [2]string{"", "order.placed"}, nil, `exchange "admin"`, `exchange "admin" is not allowed by sink.rabbitmq.allow.exchange`, true},
		"default":         {"", "{type}", [2]string{"", "order.placed"}, nil, "the default exchange", "the default exchange is not allowed by sink.rabbitmq.allow.exchange", true},
		"routing key":     {"orders", "{type}", [2]string{"", "admin"}, nil, `exchange "orders", routing key "admin"`, `routing key "admin" is not allowed by sink.rabbitmq.allow.routing_key`, false},
		"made of a key":   {"orders", "{key}", [2]string{"secret", ""}, nil, `exchange "orders", routing key "{key}"`, `routing key "{key}" is not allowed by sink.rabbitmq.allow.routing_key`, false},
		"a row":           {"orders", "k", [2]string{}, func(e *event.Event) { e.Route = to("admin", "k") }, `exchange "admin"`, `exchange "admin" is not allowed by sink.rabbitmq.allow.exchange`, true},
		"a row, allowed":  {"orders", "k", [2]string{}, func(e *event.Event) { e.Route = to("orders", "order.paid") }, "", "", false},
		"a replay":        {"orders", "k", [2]string{}, func(e *event.Event) { e.Route, e.Replay = to("orders", "admin"), true }, `exchange "orders", routing key "admin"`, `routing key "admin" is not allowed by sink.rabbitmq.allow.routing_key`, false},
		"a copy":          {"orders", "k", [2]string{}, func(e *event.Event) { e.Route, e.Copy = to("mirror", "k"), true }, `exchange "mirror"`, `exchange "mirror" is not allowed by sink.rabbitmq.allow.exchange`, true},
		"a copy, allowed": {"{key}", "k", [2]string{"admin", ""}, func(e *event.Event) { e.Route, e.Copy = to("dead", "k"), true }, "", "", false},
		"without a name":  {"orders", "{type}", [2]string{}, func(e *event.Event) { e.Type = nil }, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Exchange: tpl(t, c.exchange), RoutingKey: tpl(t, c.routingKey), Allow: ordersOnly, Lanes: 1}
			cfg.Columns = []string{"c"}
			s, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ev := newEvent(c.made[0], c.made[1])
			ev.Columns = [][]byte{[]byte("admin")}
			if c.spoil != nil {
				c.spoil(ev)
			}
			if c.text == "" {
				m := newMessage(&s.layout, &s.limits)
				if fault := m.notAllowed(ev); fault != nil {
					t.Errorf("refused: %+v", fault)
				}
				return
			}
			var outcomes [1]sink.Outcome
			if err := s.Publish(await.Context(t), 0, []*event.Event{ev}, outcomes[:]); err != nil {
				t.Fatal(err)
			}
			for _, suspect := range []bool{false, true} {
				probed, err := s.Probe(await.Context(t), ev, suspect)
				if err != nil || probed.State != sink.Rejected || *probed.Fault != *outcomes[0].Fault {
					t.Errorf("probe: %+v, %v", probed, err)
				}
			}
			wantRejected(t, outcomes[0], sink.Destination, sink.NotAllowed)
			if f := outcomes[0].Fault; f.Destination != c.destination || f.Text != c.text || f.Whole != c.whole {
				t.Errorf("got %+v", f)
			}
		})
	}
}

// In one call the others go, also of the key to another exchange; behind a refused event nothing of
// its key and exchange does.
func TestNotAllowedAmongOthers(t *testing.T) {
	b := newBroker(t)
	b.exchange("orders", nil)
	b.exchange("dead", nil)
	cfg := b.config()
	cfg.Exchange, cfg.RoutingKey, cfg.Allow = tpl(t, "{column:c}"), tpl(t, "{type}"), ordersOnly
	cfg.Columns = []string{"c"}
	s := start(t, cfg)
	ev := func(key, exchange, routingKey string) *event.Event {
		e := newEvent(key, routingKey)
		e.Columns, e.Hash = [][]byte{[]byte(exchange)}, uint64(key[0])
		return e
	}
	all := []*event.Event{
		ev("a", "orders", "order.1"), ev("a", "orders", "admin"), ev("a", "orders", "order.2"), ev("a", "dead", "k"), ev("b", "orders", "order.3"), ev("b", "admin", "k"),
	}
	outcomes := s.send(all...)
	states := make([]sink.State, len(outcomes))
	for i, o := range outcomes {
		states[i] = o.State
	}
	if want := []sink.State{sink.Confirmed, sink.Rejected, sink.Unsent, sink.Confirmed, sink.Confirmed, sink.Rejected}; !slices.Equal(states, want) {
		t.Errorf("got %v, want %v", states, want)
	}
	for i, m := range b.take("orders", 2) {
		if want := all[[]int{0, 4}[i]]; m.MessageId != string(want.ID) {
			t.Errorf("message %d is %s, want %s", i, m.MessageId, want.ID)
		}
	}
}

// Behind a refused event of its key and exchange another one has no verdict: it is unsent, as if
// the broker had refused the first.
func TestBehindNotAllowed(t *testing.T) {
	s := bounded(t, "orders", "{type}", ordersOnly)
	events := []*event.Event{newEvent("a", "admin"), newEvent("a", "admin"), newEvent("a", "order.1"), newEvent("b", "admin")}
	for _, ev := range events {
		ev.Hash = uint64(ev.Key[0])
	}
	outcomes := make([]sink.Outcome, len(events))
	if err := s.Publish(await.Context(t), 0, events, outcomes); err != nil {
		t.Fatal(err)
	}
	for i, want := range []sink.State{sink.Rejected, sink.Unsent, sink.Unsent, sink.Rejected} {
		if outcomes[i].State != want {
			t.Errorf("event %d is %s, want %s", i, outcomes[i].State, want)
		}
	}
}

// A profile's records go through the same check.
func TestProfileNotAllowed(t *testing.T) {
	cfg := asServer(newBroker(t), nil)
	cfg.Allow.Exchange = sink.Allow{"outbox.event.order"}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := newMessage(&s.layout, &s.limits)
	if fault := m.notAllowed(outboxRow(&cfg, anID, "order", "1", "{}")); fault != nil {
		t.Errorf("refused: %+v", fault)
	}
	if fault := m.notAllowed(outboxRow(&cfg, anID, "admin", "1", "{}")); fault == nil || fault.Reason != sink.NotAllowed || !fault.Whole {
		t.Errorf("got %+v", fault)
	}
}

// To look at an event costs nothing that has to be collected.
func TestAllowedAllocatesNothing(t *testing.T) {
	s := bounded(t, "{aggregate}", "{type}", Allow{Exchange: sink.Allow{"x*", "o*d*r"}, RoutingKey: sink.Allow{"*"}})
	m := newMessage(&s.layout, &s.limits)
	ev := newEvent("k", "placed")
	if n := testing.AllocsPerRun(100, func() {
		if m.notAllowed(ev) != nil {
			t.Fatal("it is not allowed")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
