// Which lane an event belongs to.

package kafka

import (
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

const (
	laneOfNoTopic = 0 // events whose topic cannot be named; with OneLane, all events
	laneOfMany    = 1 // topics that were met when maxWrong others had been in error
	firstLane     = 2

	// maxWrong bounds the topics in error that have a lane of their own. Names of topics may be made from data, so there
	// is no bound to the wrong ones.
	maxWrong = 1000

	// newAfter is how long a topic may be unknown to the brokers, or without leaders, when it was just created. While one
	// is asked for again the reader stands, so names that are wrong may have that once in graceEvery.
	newAfter   = time.Second
	graceEvery = 10 * time.Second
)

// topics gives each event its lane. It is the reader's.
//
// A topic's lanes are as many as it had partitions when it was first seen, and that never changes, whatever becomes of the
// topic: so all events of a key are in one lane for ever. The partition of a record is computed anew in each call. A topic
// that was in error when it was first seen has one lane for ever, but one that may be new is asked for again for a while.
// A lane is made when its first event comes.
type topics struct {
	sink   *Sink
	byName map[string]*lanesOf
	wrong  int
	grace  time.Time // the end of the last one
	name   []byte    // scratch
}

// lanesOf are the lanes of one topic, by partition.
type lanesOf struct{ lanes []int32 }

// lane is Sink.Lane.
func (t *topics) lane(ev *outbox.Event) (lane int, ok bool) {
	if t.sink.cfg.OneLane {
		return laneOfNoTopic, true
	}
	layout := t.sink.layout
	name, fault := layout.topic(ev, t.name)
	if layout.constant == nil {
		t.name = name[:0]
	}
	if fault != nil {
		return laneOfNoTopic, true
	}
	of := t.byName[string(name)]
	if of == nil {
		if t.wrong >= maxWrong {
			// From now on this is the answer for every topic not met before, without a memory of it: so it is the same
			// for ever, too.
			return laneOfMany, true
		}
		if of = t.meet(string(name)); of == nil {
			return 0, false
		}
	}
	partition := int32(0)
	if n := len(of.lanes); n > 1 {
		partition = partitionOf(ev, int32(n))
	}
	if of.lanes[partition] == 0 {
		of.lanes[partition] = t.sink.addLane()
	}
	return int(of.lanes[partition]), true
}

// meet looks at a topic for the first time. It is nil, and the reader stands, until metadata has answered for the topic: once,
// or for newAfter again and again when it may be new.
func (t *topics) meet(name string) *lanesOf {
	state := t.sink.known.Load().topics[name]
	if state == nil {
		t.sink.control.want(name)
		t.sink.control.ask(name)
		return nil
	}
	if state.maybeNew() && t.patient(time.Now()) {
		t.sink.control.ask(name)
		return nil
	}
	t.sink.control.want(name)
	of := &lanesOf{lanes: make([]int32, max(1, len(state.partitions)))}
	if state.code != 0 {
		t.wrong++
	}
	t.byName[name] = of
	return of
}

// maybeNew reports whether the topic is in an error that one has which was just created.
func (t *topicState) maybeNew() bool {
	code := kafkago.Error(t.code)
	return code == kafkago.UnknownTopicOrPartition || code == kafkago.LeaderNotAvailable
}

// patient reports whether a topic in error is to be asked for again before it is given its only lane.
func (t *topics) patient(now time.Time) bool {
	if now.Sub(t.grace) >= graceEvery {
		t.grace = now.Add(newAfter)
	}
	return now.Before(t.grace)
}
