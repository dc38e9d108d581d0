// Where an event belongs: its lane, its topic and its partition.

package kafka

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

const (
	laneOfNoTopic = 0 // events whose topic cannot be named; with OneLane, all events
	laneOfMany    = 1 // topics first seen when maxTopicsInError others had been in error
	firstLane     = 2

	// maxTopicsInError bounds the topics in error that have a lane of their own. Topic names may be
	// made from data, so the number of wrong ones is not bounded.
	maxTopicsInError = 1000

	// newTopicPatience is how long a topic may be unknown to the brokers, or without leaders, after
	// it was created. The reader waits while it is asked for again. So wrong names get this wait
	// only once in graceEvery.
	newTopicPatience = time.Second
	graceEvery       = 10 * time.Second
)

// placement gives each event its place. The reader asks for every event, others may at the same
// time.
//
// A topic has as many lanes as it had partitions when it was first seen. The number never changes,
// so all events of a key are in one lane for ever. The partition of a record is computed again in
// each call. A topic that was in error when it was first seen has one lane for ever, but one that
// may be new is asked for again for a while. A lane is made when its first event comes.
type placement struct {
	sink *Sink

	mu            sync.Mutex
	lanes         map[string][]int32 // of a topic, by partition; 0: not made yet
	topicsInError int                // topics that were in error when they were first seen
	graceEnd      time.Time          // the end of the last grace period
	unanswered    int                // places without an answer since metadata was answered
	placeUnknown  bool               // see Sink.PlaceAnyway
}

// maxWaiting is more than the number of goroutines that ask for places.
const maxWaiting = 16

// place implements Sink.Place.
func (pl *placement) place(ev *event.Event) (p sink.Place, ok bool) {
	layout := pl.sink.layout
	rec := recordPool.Get().(*sink.Record) //nolint:forcetypeassert // the pool has no others
	defer func() {
		rec.Forget()
		recordPool.Put(rec)
	}()
	name, fault := layout.Place(ev, rec)
	if name == nil {
		return sink.Place{Lane: laneOfNoTopic}, true
	}
	if p.ExchangeOrTopic = layout.ExchangeOrTopic; p.ExchangeOrTopic == 0 || ev.Route != nil {
		p.ExchangeOrTopic = sink.ExchangeOrTopicOf(name)
	}
	partitions := 0 // as many as the newest metadata knows
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
		if partitions == 0 { // in error, and may come back as it was
			partitions = lanes
		}
	}
	partition := partitionOf(ev, rec, int32(max(1, partitions)))
	p.Dest = sink.DestOfPartition(p.ExchangeOrTopic, partition)
	return p, true
}

// recordPool are scratch space to compute where an event goes, for several goroutines.
var recordPool = sync.Pool{New: func() any { return new(sink.Record) }}

// laneOf returns the lane of an event, and how many lanes its topic has. ok has the meaning that it
// has in Place.
func (pl *placement) laneOf(ev *event.Event, name []byte, state *kafkaclient.Topic) (lane, lanes int, ok bool) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	of := pl.lanes[string(name)]
	if of == nil {
		if pl.topicsInError >= maxTopicsInError {
			// From now on every new topic gets this lane. It is not remembered, and so its lane
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
		// The lane goes by the ordering key in the row, not by the record that an encoder makes of
		// it. The bytes of the record's key may change with the table (a column becomes NOT NULL),
		// a row may name its partition, and a row that cannot be rendered has no record. All events
		// of a key must be in one lane: only the lane keeps a later one behind an earlier one.
		partition = keyPartition(ev, int32(n))
	}
	if of[partition] == 0 {
		of[partition] = pl.sink.addLane()
	}
	return int(of[partition]), len(of), true
}

// chooseLanes chooses the lanes of a new topic. It returns nil, and the reader waits, until there
// is metadata of the topic: one answer, or answers for the time newTopicPatience when the topic may
// be new.
func (pl *placement) chooseLanes(name string, state *kafkaclient.Topic) []int32 {
	if state == nil {
		pl.sink.client.Control.KeepFresh(name)
		pl.sink.client.Control.RequestMetadata(name)
		if !pl.placeUnknown {
			return nil
		}
		pl.topicsInError++ // as many as those in error, or names made from data have no bound
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

// placeAnyway is Sink.PlaceAnyway.
func (pl *placement) placeAnyway(on bool) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.placeUnknown = on
}

// takeWaiting returns how many callers wait for an answer; at least one, for a caller that reads
// Changed without having asked.
func (pl *placement) takeWaiting() int {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	n := max(1, min(pl.unanswered, maxWaiting))
	pl.unanswered = 0
	return n
}

// inGrace reports whether a topic in error is to be asked for again before it is given its only
// lane.
func (pl *placement) inGrace(now time.Time) bool {
	if now.Sub(pl.graceEnd) >= graceEvery {
		pl.graceEnd = now.Add(newTopicPatience)
	}
	return now.Before(pl.graceEnd)
}
