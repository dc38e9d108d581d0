// Which lane, topic and partition an event gets. All events of a key must get the same lane for
// ever, because only a lane keeps their order.

package kafka

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

const (
	laneOfNoTopic = 0 // for events whose topic cannot be named; with OneLane, for all events
	// for topics that were first seen when maxTopicsInError others had been in error
	laneOfMany = 1
	firstLane  = 2

	// maxTopicsInError is how many topics in error may have a lane of their own. Topic names may be
	// made from data, so the number of wrong names has no bound.
	maxTopicsInError = 1000

	// newTopicPatience is how long a topic may be unknown to the brokers, or without leaders, after
	// it was created. While it is asked for again the reader waits, so wrong names get this time
	// only once in graceEvery.
	newTopicPatience = time.Second
	graceEvery       = 10 * time.Second
)

// placement gives each event its place. The reader asks for the place of every event; other
// goroutines may ask at the same time.
//
// A topic gets as many lanes as it had partitions when it was first seen. The number never changes,
// so all events of a key are in one lane for ever. The partition of a record is computed again in
// each call. A topic that was in error when it was first seen has one lane for ever; a topic that
// may be new is first asked for again for a while. A lane is made when its first event comes.
type placement struct {
	sink *Sink

	mu sync.Mutex
	// the lanes of each topic, by partition; 0 for a lane that was not made yet
	lanes         map[string][]int32
	topicsInError int       // topics that were in error when they were first seen
	graceEnd      time.Time // the end of the last grace period
	unanswered    int       // places that could not be given since metadata last came
	placeUnknown  bool      // see Sink.PlaceAnyway
}

// maxWaiting is an upper bound for the goroutines that ask for places at the same time.
const maxWaiting = 16

// place implements Place of the sink.
func (pl *placement) place(ev *event.Event) (p sink.Place, ok bool) {
	rec := recordPool.Get().(*sink.Record) //nolint:forcetypeassert // the pool has no others
	p, ok = pl.placeIn(rec, ev)
	rec.ForgetPlace()
	recordPool.Put(rec)
	return p, ok
}

// recordPool has scratch records for computing where an event goes, for several goroutines.
var recordPool = sync.Pool{New: func() any { return new(sink.Record) }}

// placeIn is place, with a scratch record.
func (pl *placement) placeIn(rec *sink.Record, ev *event.Event) (p sink.Place, ok bool) {
	layout := pl.sink.layout
	name, fault := layout.Place(ev, rec)
	if name == nil {
		return sink.Place{Lane: laneOfNoTopic}, true
	}
	if p.ExchangeOrTopic = layout.ExchangeOrTopic; p.ExchangeOrTopic == 0 || ev.Route != nil {
		p.ExchangeOrTopic = sink.ExchangeOrTopicOf(name)
	}
	partitions := 0 // as many as the newest metadata has
	state := pl.sink.client.Metadata.Load().Topics[string(name)]
	if state != nil {
		partitions = len(state.Partitions)
	}
	if fault != nil || pl.sink.cfg.OneLane {
		p.Lane = laneOfNoTopic
	} else {
		lane, lanes, known := pl.laneOf(ev, name, state)
		if !known {
			return sink.Place{}, false
		}
		p.Lane = lane
		if partitions == 0 { // the topic is in error, and may come back as it was
			partitions = lanes
		}
	}
	partition := PartitionOf(ev, rec, int32(max(1, partitions)))
	p.Dest = sink.DestOfPartition(p.ExchangeOrTopic, partition)
	return p, true
}

// laneOf returns the lane of an event, and how many lanes its topic has. ok is false, as in Place,
// while that is not known.
func (pl *placement) laneOf(ev *event.Event, name []byte, state *kafkaclient.Topic) (lane, lanes int, ok bool) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	of := pl.lanes[string(name)]
	if of == nil {
		if pl.topicsInError >= maxTopicsInError {
			// From now on every new topic gets this lane. The topic is not remembered, so its lane
			// never changes either.
			return laneOfMany, 1, true
		}
		if of = pl.chooseLanes(string(name), state); of == nil {
			pl.unanswered++
			return 0, 0, false
		}
	}
	partition := int32(0)
	if n := len(of); n > 1 {
		// The lane depends on the ordering key in the row, not on the record that an encoder makes
		// of it. The bytes of the record's key may change with the table (a column becomes NOT
		// NULL), a row may name its partition, and a row that cannot be rendered has no record. All
		// events of a key must be in one lane, because only the lane keeps a later event behind an
		// earlier one.
		partition = keyPartition(ev, int32(n))
	}
	if of[partition] == 0 {
		of[partition] = pl.sink.addLane()
	}
	return int(of[partition]), len(of), true
}

// chooseLanes chooses the lanes of a topic that is first seen. It returns nil, and the reader
// waits, until there is metadata of the topic: one answer or, when the topic may be new, answers
// for newTopicPatience.
func (pl *placement) chooseLanes(name string, state *kafkaclient.Topic) []int32 {
	if state == nil {
		pl.sink.client.Control.KeepFresh(name)
		pl.sink.client.Control.RequestMetadata(name)
		if !pl.placeUnknown {
			return nil
		}
		// it counts as a topic in error, because names made from data have no bound
		pl.topicsInError++
		pl.lanes[name] = make([]int32, 1)
		return pl.lanes[name]
	}
	if state.MaybeNew() && !pl.placeUnknown && pl.inGrace(time.Now()) {
		pl.sink.client.Control.RequestMetadata(name)
		return nil
	}
	pl.sink.client.Control.KeepFresh(name)
	if state.Code != 0 {
		pl.topicsInError++
	}
	pl.lanes[name] = make([]int32, max(1, len(state.Partitions)))
	return pl.lanes[name]
}

// placeAnyway implements PlaceAnyway of the sink.
func (pl *placement) placeAnyway(on bool) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.placeUnknown = on
}

// takeWaiting returns how many callers wait for an answer. It is at least one, for a caller that
// reads Changed without having asked.
func (pl *placement) takeWaiting() int {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	n := max(1, min(pl.unanswered, maxWaiting))
	pl.unanswered = 0
	return n
}

// inGrace reports whether a topic in error is to be asked for again before it gets its only lane.
func (pl *placement) inGrace(now time.Time) bool {
	if now.Sub(pl.graceEnd) >= graceEvery {
		pl.graceEnd = now.Add(newTopicPatience)
	}
	return now.Before(pl.graceEnd)
}
