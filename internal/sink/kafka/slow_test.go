package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// eventFor is an event for one of so many partitions.
func eventFor(partition, of int32) *event.Event {
	for {
		if ev := few(1)[0]; keyPartition(ev, of) == partition {
			return ev
		}
	}
}

// What was not the partition's own answer does not keep it from the others: connections break for
// all that are on them, and a new leader has not been asked yet.
func TestTroubleIsNotSlow(t *testing.T) {
	withPart(t, func(d *partRig) {
		d.begin(few(1)...)
		for _, a := range []kafkaclient.Answer{{Kind: kafkaclient.Lost, Why: context.DeadlineExceeded}, {Kind: kafkaclient.Answered, Code: 6}, {Kind: kafkaclient.Unsent, Why: errRefused}} {
			d.taken()
			if d.answered(a); d.producer().part.phase == phaseWaiting {
				d.waits()
			}
			if b := d.producer().part.queuedAt; len(b.Waiting) != 1 {
				t.Errorf("after %+v it goes apart", a)
			}
		}
	})
}

// Partitions whose replicas do not keep up delay the healthy ones of their broker once each, when
// that is not known yet.
func TestSlowPartitions(t *testing.T) {
	const partitions = 8
	for _, slow := range []int32{1, 3} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			inMemory(t, 1, partitions, Config{}, func(m *memory, r *running) {
				for p := range slow {
					m.topics["events"].partitions[p].stuck = 30 * time.Second
				}
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
				defer cancel()
				stalled := make(chan time.Duration)
				for p := range int32(partitions) {
					ev := eventFor(p, partitions)
					lane, pause := r.laneOf(ev), 500*time.Millisecond
					if p < slow {
						pause = time.Second + time.Duration(p)*300*time.Millisecond
					}
					go func() {
						var sum time.Duration
						for ctx.Err() == nil {
							began := time.Now()
							got := make([]sink.Outcome, 1)
							if err := r.Publish(ctx, lane, []*event.Event{ev}, got); err != nil && ctx.Err() == nil {
								t.Errorf("publish: %v", err)
							}
							if took := time.Since(began); p >= slow && took > time.Second {
								sum += took
							}
							kafkaclient.Sleep(ctx, pause)
						}
						stalled <- sum
					}()
				}
				var longest time.Duration
				for range partitions {
					longest = max(longest, <-stalled)
				}
				t.Logf("%d slow: a healthy partition waited %s of 5 min", slow, longest)
				if limit := time.Duration(slow)*30*time.Second + 5*time.Second; longest > limit {
					t.Errorf("more than %s", limit)
				}
			})
		})
	}
}

// A healthy partition moves to a broker that waits for the replicas of a slow one.
func TestLeaderMovesToSlowBroker(t *testing.T) {
	inMemory(t, 2, 2, Config{}, func(m *memory, r *running) {
		m.change(func() {
			for p, part := range m.topics["events"].partitions {
				part.leader = int32(p + 1)
			}
			m.topics["events"].partitions[0].stuck = 30 * time.Second
		})
		slow, healthy := eventFor(0, 2), eventFor(1, 2)
		wantConfirmed(t, r.send(healthy))
		slowLane := r.laneOf(slow)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := r.Publish(ctx, slowLane, []*event.Event{slow}, make([]sink.Outcome, 1)); err == nil {
				t.Error("the slow partition is not slow")
			}
		}()
		goBy(40 * time.Second) // it was answered once, and is out again
		m.change(func() {
			part := m.topics["events"].partitions[1]
			part.leader, part.epoch = 1, part.epoch+1
		})
		began := time.Now()
		wantConfirmed(t, r.send(eventFor(1, 2)))
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
		cancel()
		<-ended
	})
}
