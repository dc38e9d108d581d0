// Where an event belongs: its lane, its topic and its partition.

package kafka

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
)

const (
	laneOfNoTopic = 0 // events whose topic cannot be named; with OneLane, all events
	laneOfMany    = 1 // topics first seen when maxWrong others had been in error
	firstLane     = 2

	// maxWrong bounds the topics in error that have a lane of their own. Topic names may be made
	// from data, so the number of wrong ones is not bounded.
	maxWrong = 1000

	// newAfter is how long a topic may be unknown to the brokers, or without leaders, when it was
	// just created. The reader waits while such a topic is requested again, so wrong names get this
	// wait only once in graceEvery.
	newAfter   = time.Second
	graceEvery = 10 * time.Second
)

// placement gives each event its place. The reader asks for every event, others may at the same
// time.
//
// A topic's lanes are as many as it had partitions when it was first seen, and that never changes,
// whatever becomes of the topic: so all events of a key are in one lane for ever. The partition of
// a record is computed again in each call. A topic that was in error when it was first seen has one
// lane for ever, but one that may be new is asked for again for a while. A lane is made when its
// first event comes.
type placement struct {
	sink *Sink

	mu      sync.Mutex
	byName  map[string]*lanesOf
	wrong   int
	grace   time.Time // the end of the last grace period
	waiting int       // places without an answer since metadata was answered
}

// maxWaiting is more than the number of goroutines that ask for places.
const maxWaiting = 16

// lanesOf are the lanes of one topic, by partition.
type lanesOf struct{ lanes []int32 }

// place implements Sink.Place.
func (t *placement) place(ev *event.Event) (p sink.Place, ok bool) {
	layout := t.sink.layout
	var room [record.MaxTopic]byte
	name, fault := layout.Topic(ev, room[:0])
	if name == nil {
		return sink.Place{Lane: laneOfNoTopic}, true
	}
	if p.ExchangeOrTopic = layout.ExchangeOrTopic; p.ExchangeOrTopic == 0 || ev.Route != nil {
		p.ExchangeOrTopic = sink.ExchangeOrTopicOf(name)
	}
	partitions := 0 // as many as the newest metadata knows
	state := t.sink.client.Metadata.Load().Topics[string(name)]
	if state != nil {
		partitions = len(state.Partitions)
	}
	if fault != nil || t.sink.cfg.OneLane {
		p.Lane = laneOfNoTopic
	} else {
		lane, lanes, known := t.lane(ev, name, state)
		if !known {
			return sink.Place{}, false
		}
		p.Lane = lane
		if partitions == 0 { // in error, and may come back as it was
			partitions = lanes
		}
	}
	partition := layout.Partition(ev, int32(max(1, partitions)))
	p.Dest = sink.DestOfPartition(p.ExchangeOrTopic, partition)
	return p, true
}

// lane is the lane of an event, and how many its topic has. ok is false as Place says.
func (t *placement) lane(ev *event.Event, name []byte, state *client.Topic) (lane, lanes int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.byName[string(name)]
	if of == nil {
		if t.wrong >= maxWrong {
			// From now on this is the answer for every topic not met before, without remembering
			// it: so it never changes, either.
			return laneOfMany, 1, true
		}
		if of = t.firstSeen(string(name), state); of == nil {
			t.waiting++
			return 0, 0, false
		}
	}
	partition := int32(0)
	if n := len(of.lanes); n > 1 {
		// By the ordering key in the row, whatever record a profile makes of it. The bytes of the
		// record's key may change with the table (a column that is NOT NULL from now on), a row may
		// name a partition, and of a row that cannot be rendered there is no record at all: events
		// of one key must be in one lane all the same, because nothing else keeps the later one
		// behind the earlier, or makes it wait while the earlier one waits.
		partition = record.PartitionOf(ev, int32(n))
	}
	if of.lanes[partition] == 0 {
		of.lanes[partition] = t.sink.addLane()
	}
	return int(of.lanes[partition]), len(of.lanes), true
}

// firstSeen chooses the lanes of a new topic. It returns nil, and the reader waits, until metadata
// has answered for the topic: once, or for newAfter again and again when it may be new.
func (t *placement) firstSeen(name string, state *client.Topic) *lanesOf {
	if state == nil {
		t.sink.client.Control.Want(name)
		t.sink.client.Control.Ask(name)
		return nil
	}
	if state.MaybeNew() && t.inGrace(time.Now()) {
		t.sink.client.Control.Ask(name)
		return nil
	}
	t.sink.client.Control.Want(name)
	of := &lanesOf{lanes: make([]int32, max(1, len(state.Partitions)))}
	if state.Code != 0 {
		t.wrong++
	}
	t.byName[name] = of
	return of
}

// takeWaiting returns how many callers wait for an answer; at least one, for a caller that reads
// Changed without having asked.
func (t *placement) takeWaiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := max(1, min(t.waiting, maxWaiting))
	t.waiting = 0
	return n
}

// inGrace reports whether a topic in error is to be asked for again before it is given its only
// lane.
func (t *placement) inGrace(now time.Time) bool {
	if now.Sub(t.grace) >= graceEvery {
		t.grace = now.Add(newAfter)
	}
	return now.Before(t.grace)
}
