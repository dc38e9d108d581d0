package kafka

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A topic that no pattern allows is refused before the brokers are asked about it, and although
// there are none: so no row makes a broker create one. New events, rows with a route, replays,
// copies and probes alike.
func TestTopicNotAllowed(t *testing.T) {
	for _, oneLane := range []bool{false, true} {
		cfg := Config{Brokers: []string{"1:9092"}, RecordConfig: toTopic(t, "{column:topic}"), OneLane: oneLane}
		cfg.Allow = sink.Allow{"outbox.*", "dead"}
		s, err := New(cfg)
		must(t, err)
		routed, replay := newEvent("outbox.order", "k"), newEvent("outbox.order", "k")
		routed.Route = &event.Route{Name: []byte("admin")}
		replay.Route, replay.Replay, replay.Copy = &event.Route{Name: []byte("admin")}, true, true
		for _, ev := range []*event.Event{newEvent("admin", "k"), routed, replay} {
			p, ok := s.Place(ev)
			if !ok || p.Lane != laneOfNoTopic || p.ExchangeOrTopic != sink.ExchangeOrTopicOf([]byte("admin")) {
				t.Fatalf("place %+v, %v", p, ok)
			}
			var outcomes [1]sink.Outcome
			must(t, s.Publish(await.Context(t), p.Lane, []*event.Event{ev}, outcomes[:]))
			probed, err := s.Probe(await.Context(t), ev, false)
			must(t, err)
			for _, o := range []sink.Outcome{outcomes[0], probed} {
				wantRejected(t, o, sink.Destination, sink.NotAllowed)
				if f := o.Fault; !f.Whole || f.Destination != `topic "admin"` || f.Text != `topic "admin" is not allowed by sink.kafka.allow.topic` {
					t.Errorf("%+v", f)
				}
			}
		}
		teach(s, map[string]int{"outbox.order": 4, "dead": 1})
		for _, topic := range []string{"outbox.order", "dead"} {
			ev := newEvent(topic, "k")
			if p, ok := s.Place(ev); !ok || !oneLane && p.Lane == laneOfNoTopic {
				t.Errorf("%s: place %+v, %v", topic, p, ok)
			}
			if n := testing.AllocsPerRun(100, func() { s.Place(ev) }); n > 0 {
				t.Errorf("%s: %v allocations for a place", topic, n)
			}
		}
	}
}
