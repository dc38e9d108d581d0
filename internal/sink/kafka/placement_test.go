package kafka

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// teach has metadata know topics by their number of partitions; 0: it is missing.
func teach(s *Sink, topics map[string]int) {
	was := s.client.Metadata.Load()
	is := was.Merge(&metadata.Response{}, func(*kafkaclient.Topic) bool { return true }, time.Now())
	for name, n := range topics {
		state := &kafkaclient.Topic{Name: name, Version: is.Version}
		if n == 0 {
			state.Code = 3
		}
		for range n {
			state.Partitions = append(state.Partitions, kafkaclient.Leader{Node: 1, Epoch: 0})
		}
		is.Topics[name] = state
	}
	s.client.Metadata.Store(is)
}

func laneOf(t *testing.T, s *Sink, topic, key string) int {
	t.Helper()
	for began := time.Now(); ; goBy(kafkaclient.AskEvery) {
		if p, ok := s.Place(newEvent(topic, key)); ok {
			return p.Lane
		}
		if time.Since(began) > newTopicPatience {
			t.Fatalf("no lane for %s", topic)
		}
	}
}

func byTopic(t *testing.T) *Sink {
	s, err := New(Config{Brokers: []string{"1:9092"}, RecordConfig: toTopic(t, "{column:topic}")})
	must(t, err)
	return s
}

// A key's lane never changes, whatever becomes of its topic.
func TestLanesStay(t *testing.T) { synctest.Test(t, testLanesStay) }

func testLanesStay(t *testing.T) {
	s := byTopic(t)
	if _, ok := s.Place(newEvent("a", "k")); ok {
		t.Fatal("a lane before metadata")
	}
	teach(s, map[string]int{"a": 4, "b": 1, "missing": 0})
	lanes := map[string]int{}
	used := map[int]string{}
	for i := range 200 {
		for _, topic := range []string{"a", "b", "missing"} {
			ev := newEvent(topic, fmt.Sprint(i))
			lane := laneOf(t, s, topic, fmt.Sprint(i))
			lanes[topic+fmt.Sprint(i)] = lane
			place := topic
			if topic == "a" {
				place = fmt.Sprint(topic, keyPartition(ev, 4))
			}
			if was, known := used[lane]; known && was != place || lane < firstLane {
				t.Fatalf("%s and %s share lane %d", was, place, lane)
			}
			used[lane] = place
		}
	}
	if len(used) != 6 {
		t.Errorf("%d lanes", len(used))
	}
	for _, later := range []map[string]int{{"a": 12, "missing": 3}, {"a": 0, "b": 0}, {"a": 2, "b": 7}} {
		teach(s, later)
		for i := range 200 {
			for _, topic := range []string{"a", "b", "missing"} {
				if lane := laneOf(t, s, topic, fmt.Sprint(i)); lane != lanes[topic+fmt.Sprint(i)] {
					t.Fatalf("%s, key %d: lane %d, then %d", topic, i, lanes[topic+fmt.Sprint(i)], lane)
				}
			}
		}
	}
}

// Topics in error have a lane each, up to a bound; from then on all new ones share one, and are not
// remembered.
func TestManyWrongTopics(t *testing.T) { synctest.Test(t, testManyWrongTopics) }

func testManyWrongTopics(t *testing.T) {
	s := byTopic(t)
	wrong := map[string]int{"good": 2}
	for i := range maxTopicsInError {
		wrong[fmt.Sprint("wrong-", i)] = 0
	}
	teach(s, wrong)
	good := laneOf(t, s, "good", "k")
	for i := range maxTopicsInError {
		if lane := laneOf(t, s, fmt.Sprint("wrong-", i), "k"); lane == laneOfMany {
			t.Fatalf("topic %d has no lane of its own", i)
		}
	}
	met := len(s.placement.lanes)
	for i := range 100 {
		if lane := laneOf(t, s, fmt.Sprint("more-", i), "k"); lane != laneOfMany {
			t.Errorf("lane %d", lane)
		}
	}
	if lane := laneOf(t, s, "good", "k"); lane != good || len(s.placement.lanes) != met {
		t.Errorf("lane %d, was %d; %d topics, were %d", lane, good, len(s.placement.lanes), met)
	}
}

// Of an event the reader asks for the place: it costs no allocation, whoever decides where the
// event goes.
func TestPlaceAllocates(t *testing.T) {
	templated := byTopic(t)
	constant, err := New(Config{Brokers: []string{"1:9092"}, RecordConfig: toTopic(t, "a")})
	must(t, err)
	routed := newEvent("b", "k")
	routed.Route = &event.Route{Name: []byte("a")}
	for name, c := range map[string]struct {
		sink *Sink
		ev   *event.Event
	}{
		"template": {templated, newEvent("a", "k")},
		"constant": {constant, newEvent("", "k")},
		"route":    {templated, routed},
	} {
		teach(c.sink, map[string]int{"a": 4})
		var sum uint64
		allocates := testing.AllocsPerRun(100, func() {
			p, _ := c.sink.Place(c.ev)
			sum += p.Dest
		})
		if allocates > 0 || sum == 0 {
			t.Errorf("%s: %v allocations, digests %d", name, allocates, sum)
		}
	}
}

// ExchangeOrTopic and Dest are of the topic and of the partition that the newest metadata makes
// of the key, wherever the topic comes from.
func TestPlace(t *testing.T) { synctest.Test(t, testPlace) }

func testPlace(t *testing.T) {
	s := byTopic(t)
	teach(s, map[string]int{"a": 4, "b": 1})
	place := func(ev *event.Event) sink.Place {
		t.Helper()
		p, ok := s.Place(ev)
		if !ok {
			t.Fatal("no place")
		}
		return p
	}
	want := func(ev *event.Event, topic string, partition int32) {
		t.Helper()
		exchangeOrTopic := sink.ExchangeOrTopicOf([]byte(topic))
		if p := place(ev); p.ExchangeOrTopic != exchangeOrTopic || p.Dest != sink.DestOfPartition(exchangeOrTopic, partition) {
			t.Errorf("%s: %+v", topic, p)
		}
	}
	ev := newEvent("a", "k")
	lane := place(ev).Lane
	want(ev, "a", keyPartition(ev, 4))
	routed := newEvent("b", "k")
	routed.Route = &event.Route{Name: []byte("a")}
	want(routed, "a", keyPartition(ev, 4))
	if p := place(routed); p != place(ev) {
		t.Errorf("%+v and %+v", p, place(ev))
	}
	if r := s.Route(ev); string(r.Name) != "a" || r.RoutingKey != nil {
		t.Errorf("%q", r)
	}
	if r := s.Route(routed); string(r.Name) != "a" {
		t.Errorf("%q", r)
	}
	// Partitions are added: Dest follows, the lane stays. Deleted: it is what it was at first.
	teach(s, map[string]int{"a": 9})
	want(ev, "a", keyPartition(ev, 9))
	teach(s, map[string]int{"a": 0})
	want(ev, "a", keyPartition(ev, 4))
	if p := place(ev); p.Lane != lane {
		t.Errorf("lane %d, then %d", lane, p.Lane)
	}

	none, odd, undecodable := newEvent("", "k"), newEvent("not a name", "k"), newEvent("a", "k")
	none.Columns, undecodable.Fault = [][]byte{nil}, errors.New("the id is NULL")
	for _, ev := range []*event.Event{none, undecodable} {
		if p := place(ev); p != (sink.Place{}) {
			t.Errorf("without a topic: %+v", p)
		}
	}
	if p := place(odd); p.Lane != laneOfNoTopic || p.ExchangeOrTopic != sink.ExchangeOrTopicOf([]byte("not a name")) {
		t.Errorf("with no topic's name: %+v", p)
	}
	if r := s.Route(none); r.Name != nil {
		t.Errorf("%q", r)
	}
}

// One lane is for all topics, known or not, and their digests differ all the same.
func TestPlaceOfOneLane(t *testing.T) {
	s := byTopic(t)
	s.cfg.OneLane = true
	a, ok := s.Place(newEvent("a", "k"))
	b, alsoOK := s.Place(newEvent("b", "k"))
	if !ok || !alsoOK || a.Lane != 0 || b.Lane != 0 || a.ExchangeOrTopic == b.ExchangeOrTopic || a.Dest == b.Dest {
		t.Errorf("%+v %v, %+v %v", a, ok, b, alsoOK)
	}
}

// Every caller that got no place is notified of the metadata that it waits for.
func TestAllWaitingAreNotified(t *testing.T) {
	inMemory(t, 1, 3, Config{}, func(_ *memory, r *running) {
		var waiting sync.WaitGroup
		for range 4 {
			waiting.Go(func() { r.laneOf(few(1)[0]) })
		}
		waiting.Wait()
	})
}

// While the disk guard is on, a topic has a lane before the brokers were asked for it, and keeps it
// when they tell of its partitions: no key changes its lane. A reader that waits is told.
func TestLanesWithoutMetadata(t *testing.T) { synctest.Test(t, testLanesWithoutMetadata) }

func testLanesWithoutMetadata(t *testing.T) {
	s := byTopic(t)
	if _, ok := s.Place(newEvent("a", "k")); ok {
		t.Fatal("a lane before metadata")
	}
	s.PlaceAnyway(true)
	select {
	case <-s.Changed():
	default:
		t.Error("the reader goes on waiting")
	}
	lanes := map[int]bool{}
	for i := range 100 {
		lanes[laneOf(t, s, "a", fmt.Sprint(i))] = true
	}
	if len(lanes) != 1 {
		t.Errorf("a topic without metadata has the lanes %v", lanes)
	}
	s.PlaceAnyway(false)
	if _, ok := s.Place(newEvent("b", "k")); ok {
		t.Error("a topic that came after the guard has a lane before metadata")
	}
	teach(s, map[string]int{"a": 6, "b": 6})
	for i := range 100 {
		lanes[laneOf(t, s, "a", fmt.Sprint(i))] = true
	}
	if len(lanes) != 1 {
		t.Errorf("keys have changed their lanes: %v", lanes)
	}
	if laneOf(t, s, "b", "k") == laneOf(t, s, "a", "k") {
		t.Error("two topics share a lane")
	}
}
