package rabbit

import (
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// made is a sink that is connected to nothing.
func made(t testing.TB, exchange, routingKey string) *Sink {
	t.Helper()
	s, err := New(Config{
		Exchange: tpl(t, exchange), RoutingKey: tpl(t, routingKey), Lanes: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ExchangeOrTopic and Dest are those of the names, wherever these come from: a deferred event is
// in the ordering group of one that was just read.
func TestPlaceAndRoute(t *testing.T) {
	plain, null, routed, nowhere, undecodable := newEvent("events", "created"), newEvent("events", ""), newEvent("", ""), newEvent("", ""), newEvent("events", "created")
	null.Type, undecodable.Fault = nil, errors.New("the id is NULL")
	routed.Route = &event.Route{Name: []byte("events"), RoutingKey: []byte("created")}
	nowhere.Route = &event.Route{}
	exchangeOrTopic := sink.ExchangeOrTopicOf([]byte("events"))
	dest := sink.DestOfPair(exchangeOrTopic, []byte("created"))
	for name, c := range map[string]struct {
		exchange, routingKey  string
		ev                    *event.Event
		exchangeOrTopic, dest uint64
		route                 event.Route
	}{
		"constants":        {"events", "created", plain, exchangeOrTopic, dest, event.Route{Name: []byte("events"), RoutingKey: []byte("created")}},
		"templates":        {"{key}", "{type}", plain, exchangeOrTopic, dest, event.Route{Name: []byte("events"), RoutingKey: []byte("created")}},
		"half a template":  {"events", "{type}", plain, exchangeOrTopic, dest, event.Route{Name: []byte("events"), RoutingKey: []byte("created")}},
		"a null":           {"{key}", "{type}", null, exchangeOrTopic, 0, event.Route{Name: []byte("events")}},
		"exchange is null": {"{type}", "{key}", null, 0, 0, event.Route{RoutingKey: []byte("events")}},
		"default exchange": {"", "{type}", plain, sink.ExchangeOrTopicOf(nil), sink.DestOfPair(sink.ExchangeOrTopicOf(nil), []byte("created")), event.Route{Name: []byte{}, RoutingKey: []byte("created")}},
		"route":            {"elsewhere", "other", routed, exchangeOrTopic, dest, *routed.Route},
		"empty route":      {"elsewhere", "other", nowhere, 0, 0, event.Route{}},
		"undecodable":      {"events", "created", undecodable, 0, 0, event.Route{Name: []byte("events"), RoutingKey: []byte("created")}},
	} {
		s := made(t, c.exchange, c.routingKey)
		p, ok := s.Place(c.ev)
		if !ok || p != (sink.Place{Lane: int(c.ev.Hash % 8), ExchangeOrTopic: c.exchangeOrTopic, Dest: c.dest}) {
			t.Errorf("%s: place %+v %v, want digests %#x %#x", name, p, ok, c.exchangeOrTopic, c.dest)
		}
		r := s.Route(c.ev)
		if string(r.Name) != string(c.route.Name) || string(r.RoutingKey) != string(c.route.RoutingKey) ||
			(r.Name == nil) != (c.route.Name == nil) || (r.RoutingKey == nil) != (c.route.RoutingKey == nil) {
			t.Errorf("%s: route %q, want %q", name, r, c.route)
		}
		// goroutines of other tests allocate, too, so the least of some runs is what counts
		n := testing.AllocsPerRun(100, func() { s.Place(c.ev) })
		for range 10 {
			n = min(n, testing.AllocsPerRun(10, func() { s.Place(c.ev) }))
		}
		if n > 0 {
			t.Errorf("%s: %v allocations for a place", name, n)
		}
	}
}

// A deferred event goes where it was going, a replayed one says so, and both go among others.
func TestRoutedAndReplayed(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	b.exchange("other", nil)
	s := start(t, b.config())
	routed, replayed, half := newEvent("k", "created"), newEvent("k", "created"), newEvent("k", "created")
	routed.Route = &event.Route{Name: []byte("other"), RoutingKey: []byte("stored")}
	replayed.Route, replayed.Replay = &event.Route{Name: []byte("events"), RoutingKey: []byte("elsewhere")}, true
	replayed.Headers = []byte(`{"cdc_replay": "no", "mine": 1}`)
	half.Route = &event.Route{Name: []byte("events")}
	outcomes := s.send(newEvent("k", "created"), routed, replayed, half, newEvent("k", "created"))
	wantConfirmed(t, outcomes, 3)
	wantRejected(t, outcomes[3], sink.Permanent, sink.NullInTemplate)
	if m := b.take("other", 1)[0]; m.MessageId != string(routed.ID) || m.RoutingKey != "stored" || m.Headers[sink.HeaderReplay] != nil {
		t.Errorf("routed: %q to %s, %v", m.MessageId, m.RoutingKey, m.Headers)
	}
	for i, m := range b.take("events", 3) {
		want := any(nil)
		if i == 1 {
			want = "true"
			if m.RoutingKey != "elsewhere" || m.MessageId != string(replayed.ID) || m.Headers["mine"] != int64(1) {
				t.Errorf("replayed: %q to %s, %v", m.MessageId, m.RoutingKey, m.Headers)
			}
		}
		if m.Headers[sink.HeaderReplay] != want {
			t.Errorf("message %d: %s is %v", i, sink.HeaderReplay, m.Headers[sink.HeaderReplay])
		}
	}
	lost := newEvent("k", "created")
	lost.Route = &event.Route{Name: []byte("missing"), RoutingKey: []byte("a")}
	got := s.send(lost)[0]
	wantRejected(t, got, sink.Destination, sink.NoExchange)
	if got.Fault.Destination != `exchange "missing"` || !got.Fault.Whole {
		t.Errorf("%+v", got.Fault)
	}
}

// TestNamesOfKeysAreNotShown, in the text of a fault and in spans; what is not made of keys is.
func TestNamesOfKeysAreNotShown(t *testing.T) {
	for _, tc := range []struct {
		exchange, routingKey, wantExchange, wantKey string
		isCopy                                      bool
	}{
		{"events", "by.{key}", "events", "by.{key}", false},
		{"events", "{type}", "events", "secret", false},
		{"events", "secret", "events", "secret", false},
		{"of.{key}", "placed", "of.{key}", "placed", false},
		{"of.{key}", "by.{key}", "of.{key}", "by.{key}", false},
		{"of.{key}", "by.{key}", "dead_letters", "secret", true},
	} {
		s := made(t, tc.exchange, tc.routingKey)
		ev := newEvent("secret", "secret")
		if tc.isCopy {
			ev.Copy, ev.Route = true, &event.Route{Name: []byte("dead_letters"), RoutingKey: []byte("secret")}
		}
		m := newMessage(&s.layout, &s.limits)
		if fault := m.makeChecked(ev); fault != nil {
			t.Fatal(fault)
		}
		topic := faultOfException(&m, refused("ACCESS_REFUSED - access to topic '"+m.routingKey+"' in exchange '"+m.exchange+"' refused"), 1)
		missing := faultOfException(&m, &amqp.Error{Code: amqp.NotFound, Reason: "NOT_FOUND - no exchange '" + m.exchange + "' in vhost '/'", Server: true}, 1)
		if missing.Reason != sink.NoExchange || !missing.Whole || topic.Reason != sink.NotPermitted || topic.Whole {
			t.Errorf("%+v: %+v, %+v", tc, missing, topic)
		}
		to := s.SentTo(ev)
		shown := pairText(to.Name, to.RoutingKey)
		both := []string{tc.wantExchange, tc.wantKey}
		for what, c := range map[string]struct {
			text string
			want []string
		}{
			"shown": {shown, both}, "going": {m.destinationText(), both},
			"refused": {topic.Destination, both}, "text": {topic.Text, both},
			"missing": {missing.Destination, both[:1]}, "missing's text": {missing.Text, both[:1]},
		} {
			for _, want := range c.want {
				if !strings.Contains(c.text, want) {
					t.Errorf("%+v, %s: %s", tc, what, c.text)
				}
			}
			if tc.wantKey != "secret" && strings.Contains(c.text, "secret") {
				t.Errorf("%+v, %s: %s", tc, what, c.text)
			}
		}
	}
}

func refused(text string) *amqp.Error {
	return &amqp.Error{Code: amqp.AccessRefused, Reason: text, Server: true}
}

// The broker cuts off its text, and then a name may have lost its closing quote.
func TestCutOffTextShowsNoNames(t *testing.T) {
	s := made(t, "events", "by.{key}")
	m := newMessage(&s.layout, &s.limits)
	ev := newEvent(strings.Repeat("secret", 40), "placed")
	if fault := m.makeChecked(ev); fault != nil {
		t.Fatal(fault)
	}
	said := "ACCESS_REFUSED - access to topic '" + m.routingKey + "' in exchange 'events' in vhost '/' refused for user 'guest'"
	if got, want := faultOfException(&m, refused(said[:252]+"..."), 1).Text, "403 ACCESS_REFUSED - access to topic '…"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
