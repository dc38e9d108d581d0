package kafka

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Partitions are added, and one of the new ones has no leader: every lane has events for it, so
// soon nobody confirms anything. They are rejected and named all the same.
func TestGrownPartitionHasNoLeader(t *testing.T) {
	inMemory(t, 1, 3, Config{}, func(m *memory, r *running) {
		wantConfirmed(t, r.send(few(30)...))
		m.change(func() {
			m.grow("events", 4)
			m.topics["events"].partitions[3].leader = kafkaclient.None
		})
		goBy(kafkaclient.RefreshEvery + time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 2*r.cfg.ConfirmTimeout)
		defer cancel()
		ended := make(chan error)
		for lane := firstLane; lane < firstLane+3; lane++ {
			var call []*event.Event
			for len(call) < 20 {
				if ev := few(1)[0]; r.laneOf(ev) == lane {
					call = append(call, ev)
				}
			}
			go func() { ended <- untilRejected(ctx, r, lane, call) }()
		}
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// untilRejected publishes until events of partition 3, and no others, are rejected.
func untilRejected(ctx context.Context, r *running, lane int, call []*event.Event) error {
	got := make([]sink.Outcome, len(call))
	if err := r.Publish(ctx, lane, call, got); err != nil {
		return fmt.Errorf("lane %d: %w", lane, err)
	}
	for i, o := range got {
		want := sink.Confirmed
		if keyPartition(call[i], 4) == 3 {
			want = sink.Rejected
		}
		if o.State != want || o.Fault != nil && (o.Fault.Reason != sink.NoLeader || o.Fault.Destination != partitionName("events", 3)) {
			return fmt.Errorf("lane %d: event %d is %s %+v", lane, i, o.State, o.Fault)
		}
	}
	return nil
}

// A partition without a leader is not blamed when nobody was confirmed since, or when the metadata
// is old: then it is the cluster that is away.
func TestLeaderlessIsNotAccused(t *testing.T) {
	for name, c := range map[string]struct {
		confirms, answers bool
		want              sink.State
	}{
		"others confirm, metadata answers": {true, true, sink.Rejected},
		"nobody confirms":                  {false, true, sink.Unsent},
		"metadata does not answer":         {true, false, sink.Unsent},
	} {
		t.Run(name, func(t *testing.T) {
			withPart(t, func(d *partRig) {
				d.begin(few(1)...)
				d.taken()
				d.know(kafkaclient.Leader{Node: kafkaclient.None, Epoch: 6})
				d.code(6)
				goBy(time.Millisecond)
				if c.confirms {
					d.othersConfirm()
				}
				for range 120 {
					goBy(pauseMax)
					if c.answers {
						d.know(kafkaclient.Leader{Node: kafkaclient.None, Epoch: 6})
					}
					d.step()
				}
				d.Want(c.want, sink.NoLeader, sink.Destination)
			})
		})
	}
}

// A topic that is created a little after its first event has a lane for each partition; the events
// of one that is missing are rejected soon, and soon for the next one, too.
func TestNewTopic(t *testing.T) {
	inMemory(t, 1, 1, Config{}, func(m *memory, r *running) {
		m.change(func() { delete(m.topics, "events") })
		time.AfterFunc(300*time.Millisecond, func() { m.change(func() { m.create("events", 12) }) })
		wantConfirmed(t, r.send(few(100)...))
		if n := len(r.lanes) - firstLane; n != 12 {
			t.Errorf("%d lanes", n)
		}
	})
	inMemory(t, 1, 1, Config{}, func(m *memory, r *running) {
		m.change(func() { delete(m.topics, "events") })
		began := time.Now()
		wantRejected(t, r.send(few(1)...)[0], sink.Destination, sink.NoTopic)
		if took := time.Since(began); took < newTopicPatience || took > newTopicPatience+100*time.Millisecond {
			t.Errorf("rejected after %s", took)
		}
	})
}

// While a name that is wrong is asked for again the reader waits, so wrong names get that wait only
// once in a while.
func TestPatience(t *testing.T) {
	var all placement
	began := time.Now()
	for _, c := range []struct {
		at   time.Duration
		want bool
	}{
		{0, true}, {newTopicPatience / 2, true}, {newTopicPatience, false}, {graceEvery / 2, false}, {newTopicPatience + graceEvery, true}, {2*newTopicPatience + graceEvery, false},
	} {
		if got := all.inGrace(began.Add(c.at)); got != c.want {
			t.Errorf("after %s: %v", c.at, got)
		}
	}
}

// A partition that was given up is given up again soon when it is probed. Its lane gives it the
// whole time again once it has stored something, and an event with a fault of its own gets it too:
// an election does not pause a partition.
func TestProbeIsAnsweredSoon(t *testing.T) {
	inMemory(t, 1, 2, Config{}, func(m *memory, r *running) {
		lead := func(node int32) { m.change(func() { m.topics["events"].partitions[1].leader = node }) }
		confirming, stop := context.WithCancel(context.Background())
		var others sync.WaitGroup
		others.Go(func() {
			for confirming.Err() == nil {
				wantConfirmed(t, r.send(eventFor(0, 2)))
				goBy(time.Second)
			}
		})
		wantConfirmed(t, r.send(eventFor(1, 2)))
		ev := eventFor(1, 2)
		givenUp := func(send func() sink.Outcome, least, most time.Duration) {
			t.Helper()
			began := time.Now()
			wantRejected(t, send(), sink.Destination, sink.NoLeader)
			if took := time.Since(began); took < least || took > most {
				t.Errorf("given up after %s, want %s to %s", took, least, most)
			}
		}
		lead(kafkaclient.None)
		for range 2 {
			givenUp(func() sink.Outcome { return r.send(ev)[0] }, r.cfg.ConfirmTimeout, r.cfg.ConfirmTimeout+time.Second)
			for range 3 {
				goBy(10 * time.Second)
				givenUp(func() sink.Outcome { return r.probe(ev, false) }, probeTime, probeTime+2*pauseMax)
			}
			givenUp(func() sink.Outcome { return r.probe(ev, true) }, r.cfg.ConfirmTimeout, r.cfg.ConfirmTimeout+time.Second)
			lead(1)
			wantConfirmed(t, []sink.Outcome{r.probe(ev, false)})
			wantConfirmed(t, r.send(eventFor(1, 2)))
			lead(kafkaclient.None)
			ev = eventFor(1, 2)
		}
		stop()
		others.Wait()
	})
}

// Nobody confirms, so a partition without a leader is not accused. Its events wait in their lane,
// and what they wait for is shown while they do.
func TestWaitingIsShown(t *testing.T) {
	inMemory(t, 1, 2, Config{}, func(m *memory, r *running) {
		lead := func(node int32) { m.change(func() { m.topics["events"].partitions[1].leader = node }) }
		lead(kafkaclient.None)
		began := time.Now()
		asked := r.ask(eventFor(1, 2))
		wantHeld(t, asked, kafkaclient.SilentAfter/2)
		if w := r.Status().Waiting; len(w) > 0 {
			t.Errorf("shown at once: %+v", w)
		}
		wantHeld(t, asked, 2*r.cfg.ConfirmTimeout)
		if w := r.Status().Waiting; len(w) != 1 || w[0].Destination != partitionName("events", 1) || w[0].Reason != sink.NoLeader ||
			w[0].Text == "" || w[0].Since.Sub(began) > time.Second {
			t.Errorf("waiting: %+v", w)
		}
		lead(1)
		wantConfirmed(t, []sink.Outcome{<-asked})
		if w := r.Status().Waiting; len(w) > 0 {
			t.Errorf("shown for ever: %+v", w)
		}
	})
}
