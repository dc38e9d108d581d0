package fault

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A destination is broken under load, and fixed. Its events wait in the retry table, in order, and
// none of them dies; those of other destinations flow, also of the same keys; the slot goes on; and
// when it is fixed the retry table empties, while the load goes on.

// broken is a way in which a destination goes bad. The stand routes: usual rows go to the one that
// breaks, a third of them to one that does not.
type broken struct {
	place  stand.Place
	set    func(*stand.Stand) // before the first relay; nil: nothing
	breaks func(*stand.Stand)
	fix    func(*stand.Stand)
	reason string // cdc_relay_rejections_total
	late   int    // what may arrive twice beside what was on the wire; -1: any number
}

const (
	orders  = "outbox.events"
	healthy = "healthy.events"
)

// The binding is removed: what costs Debezium Server 59 % of its events.
func TestDestinationBroken(t *testing.T) {
	stand.Parallel(t)
	broken{
		place: stand.SharedRabbitMQ(t), reason: "unroutable",
		breaks: func(s *stand.Stand) { s.Unbind(orders, "#") },
		fix:    func(s *stand.Stand) { s.Bind(orders, "#") },
	}.meet(t)
}

func (b broken) meet(t *testing.T) {
	s := stand.New(t, b.place)
	s.Route()
	s.Retry = "backoff: 200ms, max_backoff: 1s"
	s.Kinds = []load.Kind{{Share: 0.33, Destination: healthy}}
	s.MakeExchange(healthy)
	if b.set != nil {
		b.set(s)
	}
	r := s.StartWatched()
	stop := s.Load(200)
	s.MoreOf(healthy, 30)
	b.breaks(s)
	s.AwaitRows(checker.Deferred, 100)
	s.MoreOf(healthy, 50)
	before := s.Flush()
	s.Until("the slot to go on", func() bool { return s.Flush() > before })
	s.Ready(r)
	if n := s.Metric(r, fmt.Sprintf(`cdc_relay_rejections_total{class="destination",reason=%q}`, b.reason)); n == 0 {
		t.Errorf("no rejection is counted for the reason %s", b.reason)
	}
	if n := s.Metric(r, "cdc_relay_destinations_paused"); n < 1 {
		t.Errorf("%g destinations are paused", n)
	}
	s.Until("the metrics to tell of what the table has", func() bool { return s.Metric(r, "cdc_relay_deferred_events") >= 50 })
	b.fix(s)
	s.AwaitEmpty() // under load
	s.MoreOf(healthy, 10)
	stop()
	bound := -1
	if b.late >= 0 {
		bound = s.Repeats(2*s.Keys) + b.late
	}
	s.Check(bound)
	s.Until("nothing to be paused or deferred by the metrics", func() bool {
		return s.Metric(r, "cdc_relay_destinations_paused") == 0 && s.Metric(r, "cdc_relay_deferred_events") == 0
	})
	stopped(s, r, 0)
}

// Of one key and exchange, an event waits behind an earlier one whose routing key nothing is bound
// for, though its own is bound; those of other keys, and of the key in another exchange, do not.
func TestLaterEventsWaitBehindADeferredEvent(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t, stand.SharedRabbitMQ(t))
	s.Route()
	s.MakeExchange(healthy)
	s.Bind(orders, "order.placed")
	s.Unbind(orders, "#")
	r := s.StartWatched()
	insert := func(key string, seq int, exchange, routingKey string) (id string) {
		return event(s, key, seq, load.Kind{Destination: exchange, RoutingKey: routingKey})
	}
	first := insert("a", 1, orders, "order.lost")
	s.AwaitRows(checker.Deferred, 1)
	behind := []string{insert("a", 2, orders, "order.placed"), insert("a", 3, orders, "order.placed")}
	others := []string{insert("b", 1, orders, "order.placed"), insert("a", 4, healthy, "order.placed")}
	s.Must(s.Consumer.WaitIDs(s.Context(), others))
	s.AwaitRows(checker.Deferred, 3)
	for _, d := range s.Consumer.Deliveries() {
		if d.ID == first || d.ID == behind[0] || d.ID == behind[1] {
			t.Errorf("event %s has arrived, before the first of its key", d.ID)
		}
	}
	s.Bind(orders, "order.lost")
	s.Must(s.Consumer.WaitIDs(s.Context(), append(behind, first)))
	s.Check(0)
	stopped(s, r, 0)
}
