package kafka

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// tooFew has the partitions refuse for want of replicas, or take batches again.
func (m *memory) tooFew(on bool, partitions ...int) {
	m.change(func() {
		for _, p := range partitions {
			m.topics["events"].partitions[p].tooFew = on
		}
	})
}

// ask publishes an event of the partition, and gives its outcome when the call has ended.
func (r *running) ask(ev *event.Event) <-chan sink.Outcome {
	answered := make(chan sink.Outcome, 1)
	go func() { answered <- r.send(ev)[0] }()
	return answered
}

// wantHeld wants no outcome for so long.
func wantHeld(t testing.TB, asked <-chan sink.Outcome, lasts time.Duration) {
	t.Helper()
	goBy(lasts)
	select {
	case o := <-asked:
		t.Fatalf("answered: %s %+v", o.State, o.Fault)
	default:
	}
}

func wantUp(t testing.TB, r *running, want bool) {
	t.Helper()
	if up, why := r.Up(); up != want || !up && !strings.HasPrefix(why, `too few replicas in sync for every partition that was tried: topic "events", partition `) {
		t.Errorf("up %v: %s", up, why)
	}
}

// Every partition has too few replicas in sync: that is an outage of the cluster. Nobody is
// accused, however long it lasts, and the reason is told. Afterwards each event is there once.
func TestNoPartitionHasEnoughReplicas(t *testing.T) {
	inMemory(t, 2, 3, Config{}, func(m *memory, r *running) {
		wantConfirmed(t, r.send(eventFor(0, 3), eventFor(1, 3), eventFor(2, 3)))
		m.tooFew(true, 0, 1, 2)
		var asked []<-chan sink.Outcome
		for p := range int32(3) {
			asked = append(asked, r.ask(eventFor(p, 3)))
		}
		requests := func() (n int) {
			m.change(func() { n = m.requests })
			return n
		}
		before := requests()
		goBy(10 * time.Minute)
		if n := requests() - before; n > 3*10*60+100 {
			t.Errorf("%d requests in ten minutes", n)
		}
		for _, a := range asked {
			wantHeld(t, a, 0)
		}
		wantUp(t, r, false)
		for p, a := range asked { // one recovers after the other
			m.tooFew(false, p)
			goBy(r.cfg.ConfirmTimeout / 4)
			wantConfirmed(t, []sink.Outcome{<-a})
		}
		wantUp(t, r, true)
		m.change(func() {
			if n := len(m.appends); n != 6 {
				t.Errorf("%d records", n)
			}
		})
	})
}

// short has a replica of a partition be out of sync, or come back. Enough are there.
func (m *memory) short(on bool, partition int) {
	m.change(func() { m.topics["events"].partitions[partition].short = on })
}

// A partition with too few replicas in sync is accused while another takes batches: one that
// confirms, or one that has all its replicas, also if it has nothing to send, because the in-flight
// budget is full of the refused events. A confirm of long ago tells nothing of one that lacks a
// replica itself.
func TestOthersTakeBatches(t *testing.T) {
	refused, other := eventFor(0, 2), eventFor(1, 2)
	for name, c := range map[string]struct {
		whole   bool // the other one has all its replicas
		before  bool // the other one confirms before the trouble begins
		during  int  // how often it confirms while it lasts
		refuses bool // the other one is missed as well, after that
		want    bool // accused
	}{
		"whole and idle":                     {whole: true, want: true},
		"short and idle":                     {},
		"short, confirms before the trouble": {before: true},
		"short, confirms once":               {during: 1},
		"short, goes on confirming":          {during: 4, want: true},
		"short, confirms and is refused":     {during: 1, refuses: true},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, 1, 2, Config{}, func(m *memory, r *running) {
				m.short(!c.whole, 1)
				if c.before {
					wantConfirmed(t, r.send(other))
					goBy(time.Millisecond)
				}
				m.tooFew(true, 0)
				asked := r.ask(refused)
				goBy(time.Second)
				for range c.during {
					wantConfirmed(t, r.send(other))
					goBy(r.cfg.ConfirmTimeout / 3)
				}
				if c.refuses {
					m.tooFew(true, 1)
					r.ask(other)
				}
				if !c.want {
					wantHeld(t, asked, 10*r.cfg.ConfirmTimeout)
					wantUp(t, r, false)
					m.tooFew(false, 1)
					m.short(false, 1)
				}
				goBy(r.cfg.ConfirmTimeout + 2*replicasPause)
				select {
				case o := <-asked:
					wantRejected(t, o, sink.Destination, sink.TooFewReplicas)
				default:
					t.Fatal("held while another partition takes batches")
				}
				wantUp(t, r, true)
			})
		})
	}
}

// Every topic has too few replicas in sync, and all but one recover. The others have nothing to
// send, because the refused event fills the in-flight budget: their metadata shows that they take
// batches, for as long as the one that does not recover waits. It is accused, and recovers by
// itself.
func TestOtherTopicsTakeBatches(t *testing.T) {
	for _, timeout := range []time.Duration{100 * time.Millisecond, 30 * time.Second, 2 * time.Minute} {
		t.Run(timeout.String(), func(t *testing.T) {
			inMemory(t, 1, 1, Config{RecordConfig: toTopic(t, "{column:topic}"), ConfirmTimeout: timeout}, otherTopicsTakeBatches)
		})
	}
}

func otherTopicsTakeBatches(m *memory, r *running) {
	t := r.t
	lack := func(on bool, topics ...string) {
		m.change(func() {
			for _, name := range topics {
				m.topics[name].partitions[0].tooFew = on
			}
		})
	}
	m.change(func() {
		m.create("a", 1)
		m.create("b", 1)
	})
	for _, name := range []string{"events", "a", "b"} {
		wantConfirmed(t, r.send(newEvent(name, "k")))
	}
	goBy(time.Hour)
	lack(true, "events", "a", "b")
	refused := newEvent("events", "k")
	asked := r.ask(refused)
	wantHeld(t, asked, 10*time.Minute)
	wantUp(t, r, false)
	lack(false, "a", "b")
	goBy(kafkaclient.RefreshEvery + 2*replicasPause)
	wantUp(t, r, true) // and it does not flap
	deadline := time.NewTimer(r.cfg.ConfirmTimeout + 2*replicasPause)
	for waits := true; waits; {
		select {
		case o := <-asked:
			wantRejected(t, o, sink.Destination, sink.TooFewReplicas)
			waits = false
		case <-time.After(time.Second):
			wantUp(t, r, true)
		case <-deadline.C:
			t.Error("held while other topics take batches")
			waits = false
		}
	}
	lack(false, "events")
	wantConfirmed(t, r.send(refused))
}

// A partition is paused already when the others are missed as well: its probe waits with them, and
// is refused again when one of them takes batches.
func TestProbeWaitsWithTheOthers(t *testing.T) {
	inMemory(t, 1, 2, Config{}, func(m *memory, r *running) {
		refused := eventFor(0, 2)
		m.tooFew(true, 0)
		asked := r.ask(refused)
		goBy(time.Second)
		wantConfirmed(t, r.send(eventFor(1, 2)))
		wantRejected(t, <-asked, sink.Destination, sink.TooFewReplicas)
		wantRejected(t, r.probe(refused, false), sink.Destination, sink.TooFewReplicas)
		m.tooFew(true, 1)
		other := r.ask(eventFor(1, 2))
		goBy(kafkaclient.SilentAfter + replicasPause)
		probe := make(chan sink.Outcome, 1)
		go func() { probe <- r.probe(refused, false) }()
		wantHeld(t, probe, time.Hour)
		wantHeld(t, other, 0)
		m.tooFew(false, 1)
		wantConfirmed(t, []sink.Outcome{<-other})
		goBy(probeTime + replicasPause)
		wantRejected(t, <-probe, sink.Destination, sink.TooFewReplicas)
	})
}

// With one lane nothing is sent before the call has ended: what its other partitions have confirmed
// in it counts, also when that was before the refusal.
func TestOthersOfTheCallTakeBatches(t *testing.T) {
	inMemory(t, 1, 2, Config{OneLane: true}, func(m *memory, r *running) {
		m.tooFew(true, 0)
		ctx, cancel := context.WithTimeout(context.Background(), 3*r.cfg.ConfirmTimeout)
		defer cancel()
		for _, first := range []int32{0, 1} {
			got, err := r.try(ctx, eventFor(first, 2), eventFor(1-first, 2))
			must(t, err)
			wantRejected(t, got[first], sink.Destination, sink.TooFewReplicas)
			wantConfirmed(t, got, int(first))
		}
	})
}

// While metadata is not answered a confirm counts for half of ConfirmTimeout: then the cluster is
// away.
func TestConfirmsAreForgotten(t *testing.T) {
	withPart(t, func(d *partRig) {
		d.begin(few(1)...)
		d.taken()
		d.answered(kafkaclient.Answer{Kind: kafkaclient.Unsent, Why: errRefused})
		d.othersConfirm()
		for range 100 {
			goBy(time.Second)
			if d.step(); d.producer().part.phase == phaseOut {
				d.taken()
				d.answered(kafkaclient.Answer{Kind: kafkaclient.Unsent, Why: errRefused})
			}
		}
		d.Want(sink.Unsent, "", 0)
	})
}
