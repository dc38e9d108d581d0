package kafka

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

// history is a run of the whole sink against the cluster in memory, and of lanes as simple as can
// be.
type history struct {
	t    *testing.T
	rng  *rand.Rand
	m    *memory
	sink *Sink
	ctx  context.Context

	mu       sync.Mutex
	rejected map[string]*sink.Fault
	accused  int // events rejected for their destination's fault
}

// plan is what happens in a run.
type plan struct {
	nodes, topics, partitions int
	odds                      odds
	chaos                     func(h *history) // goes on until h.ctx is done
	lasts                     time.Duration
	cancels                   bool // calls are cancelled now and then
	poisons                   bool
	oneLane                   bool
	limit                     int  // of a batch, in bytes
	duplicates                bool // are allowed
	blameless                 bool // no destination may be given up
}

var someOdds = odds{
	requestLost: 20, requestLate: 20, answerLost: 30, slow: 20, timedOut: 10, shrunk: 20, moved: 20, noIdentity: 100,
	lateness: 4 * time.Second,
}

// histories may be raised to any depth: go test -run TestHistories -args -histories 1000. What a
// seed does depends on the scheduler as well, so that no two runs are the same.
var histories = flag.Int("histories", usualHistories, "runs of each plan of TestHistories")

func TestHistories(t *testing.T) {
	for name, p := range map[string]plan{
		"poison": {nodes: 2, topics: 2, partitions: 2, odds: someOdds, lasts: 20 * time.Second, poisons: true, limit: 1 << 10},
		"all at once": {
			nodes: 3, topics: 1, partitions: 2, lasts: 20 * time.Second, poisons: true, cancels: true, duplicates: true, limit: 1 << 11,
			odds: odds{requestLost: 100, requestLate: 100, answerLost: 200, slow: 50, timedOut: 50, shrunk: 50, moved: 50, unexplained: 50, omitted: 20, forgottenOnce: 20, lateness: time.Second},
		},
		"one lane":          {nodes: 3, topics: 3, partitions: 3, odds: someOdds, lasts: 20 * time.Second, oneLane: true, poisons: true},
		"nodes come and go": {nodes: 3, topics: 1, partitions: 6, odds: someOdds, lasts: 30 * time.Second, chaos: (*history).nodesComeAndGo},
		"partitions grow":   {nodes: 3, topics: 1, partitions: 2, odds: someOdds, lasts: 30 * time.Second, chaos: (*history).partitionsGrow},
		"destinations fail": {nodes: 3, topics: 2, partitions: 3, odds: someOdds, lasts: time.Minute, chaos: (*history).destinationsFail, duplicates: true},
		"too few replicas everywhere": {
			nodes: 3, topics: 2, partitions: 3, odds: someOdds, lasts: time.Minute, chaos: (*history).tooFewEverywhere, blameless: true,
		},
		"producers are lost": {nodes: 2, topics: 1, partitions: 3, odds: with(someOdds, func(o *odds) { o.forgottenOnce, o.unexplained = 100, 30 }), lasts: 20 * time.Second, duplicates: true},
		"storage is taken back": {
			nodes: 3, topics: 2, partitions: 3, odds: someOdds, lasts: 30 * time.Second, poisons: true, chaos: (*history).storageIsTakenBack,
		},
		"topics are remade": {nodes: 3, topics: 2, partitions: 4, odds: someOdds, lasts: 30 * time.Second, chaos: (*history).topicsAreRemade, duplicates: true},
		"all of it": {
			nodes: 3, topics: 2, partitions: 4, odds: with(someOdds, func(o *odds) { o.forgottenOnce, o.unexplained = 30, 10 }),
			lasts: 30 * time.Second, cancels: true, poisons: true, duplicates: true,
			chaos: func(h *history) {
				var all sync.WaitGroup
				for _, chaos := range []func(*history){
					(*history).nodesComeAndGo, (*history).partitionsGrow, (*history).destinationsFail, (*history).topicsAreRemade,
				} {
					all.Go(func() { chaos(h) })
				}
				all.Wait()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range *histories {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { run(t, p, uint64(seed)) })
				})
			}
		})
	}
}

func with(o odds, change func(*odds)) odds {
	change(&o)
	return o
}

func run(t *testing.T, p plan, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	h := &history{t: t, rng: rng, m: newMemory(t, p.nodes, rand.New(rand.NewPCG(seed, 2))), rejected: map[string]*sink.Fault{}}
	h.m.odds = p.odds
	h.m.change(func() {
		for i := range p.topics {
			h.m.create(fmt.Sprint("topic-", i), p.partitions)
			if p.limit > 0 {
				h.m.topics[fmt.Sprint("topic-", i)].limit = p.limit
			}
		}
		for _, n := range h.m.nodes {
			n.lag = time.Duration(rng.Int64N(int64(time.Second)))
		}
	})
	var err error
	h.sink, err = New(Config{
		Brokers: []string{"1:9092"}, RecordConfig: toTopic(t, "topic-{aggregate}"), OneLane: p.oneLane, ConfirmTimeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.sink.client.Dial, h.sink.partsAdvanced = h.m.dial, h.checkParts
	running, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- h.sink.Run(running) }()
	defer func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		goBy(time.Minute) // late requests, and elections
	}()

	var cancel context.CancelFunc
	h.ctx, cancel = context.WithTimeout(t.Context(), p.lasts)
	defer cancel()
	var chaos sync.WaitGroup
	if p.chaos != nil {
		chaos.Go(func() { p.chaos(h) })
	}
	events := h.publish(p)
	chaos.Wait()
	h.check(p, events)
	// what a call has left with a worker, for a partition that is gone by now, is answered or given
	// up
	goBy(time.Minute)
	if n := h.sink.client.Pending.Load(); n != 0 {
		t.Errorf("%d records are pending", n)
	}
	for _, l := range h.sink.lanes {
		for _, r := range l.routes {
			for _, s := range r.producers {
				if s != nil && s.batch != nil && !p.duplicates {
					t.Errorf("a producer of %s/%d is left with a batch", s.Topic, s.Partition)
				}
			}
		}
	}
}

// publish makes events for as long as the run lasts, and returns when all are answered.
func (h *history) publish(p plan) (events []*event.Event) {
	queues := map[int]chan *event.Event{}
	var lanes sync.WaitGroup
	calm := time.AfterFunc(p.lasts, func() { h.m.change(func() { h.m.calm = true }) })
	defer calm.Stop()
	for n := uint64(1); h.ctx.Err() == nil; n++ {
		key := fmt.Sprint("key-", h.rng.IntN(20))
		ev := &event.Event{
			Position: event.Position{Commit: pglogrepl.LSN(n)}, Time: time.Now(), ID: fmt.Appendf(nil, "%d", n), Key: []byte(key),
			Aggregate: fmt.Appendf(nil, "%d", h.rng.IntN(p.topics)), Payload: make([]byte, h.rng.IntN(300)), Ordered: true,
		}
		if p.poisons && h.rng.IntN(50) == 0 {
			ev.Type = []byte([]string{poison, namedPoison}[h.rng.IntN(2)])
		}
		ev.Hash = uint64(kafkaclient.Murmur2(append(ev.Key, ev.Aggregate...)))
		events = append(events, ev)
		place, ok := h.sink.Place(ev)
		for !ok {
			<-h.sink.Changed()
			place, ok = h.sink.Place(ev)
		}
		lane := place.Lane
		queue := queues[lane]
		if queue == nil {
			queue = make(chan *event.Event, 1<<16)
			queues[lane] = queue
			seed := h.rng.Uint64()
			lanes.Go(func() { h.lane(lane, queue, p.cancels, rand.New(rand.NewPCG(seed, 3))) })
		}
		queue <- ev
		if h.rng.IntN(10) == 0 {
			goBy(time.Duration(h.rng.IntN(100)) * time.Millisecond)
		}
	}
	for _, queue := range queues {
		close(queue)
	}
	lanes.Wait()
	return events
}

// lane publishes a queue as the relay does: what was not settled comes again, first and in order,
// before anything new; in some calls only its first event.
func (h *history) lane(n int, queue chan *event.Event, cancels bool, rng *rand.Rand) {
	var open []*event.Event
	for {
		if len(open) == 0 {
			ev, more := <-queue
			if !more {
				return
			}
			open = append(open, ev)
			for len(queue) > 0 && len(open) < 50 {
				open = append(open, <-queue)
			}
		}
		call := open
		if cancels && rng.IntN(3) == 0 {
			call = open[:1+rng.IntN(len(open))]
		}
		ctx, cancel := context.WithCancel(context.Background())
		if cancels && h.ctx.Err() == nil && rng.IntN(3) == 0 {
			time.AfterFunc(time.Duration(rng.IntN(2000))*time.Millisecond, cancel)
		}
		outcomes := make([]sink.Outcome, len(call))
		err := h.sink.Publish(ctx, n, call, outcomes)
		if (err != nil) != (ctx.Err() != nil) && err != nil {
			h.t.Errorf("publish: %v", err)
		}
		cancel()
		open = h.settle(call, outcomes, err, open[len(call):])
		if len(open) > 0 {
			goBy(time.Duration(rng.IntN(300)) * time.Millisecond)
		}
	}
}

// settle returns what is still open: a rejected event leaves when it is itself at fault.
func (h *history) settle(call []*event.Event, outcomes []sink.Outcome, err error, rest []*event.Event) []*event.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	if fault := brokenContract(call, outcomes, err); fault != "" {
		h.t.Errorf("the contract is broken: %s", fault)
	}
	var open []*event.Event
	for i, o := range outcomes {
		switch {
		case o.State == sink.Confirmed:
		case o.State == sink.Rejected && o.Fault.Class != sink.Destination:
			h.rejected[string(call[i].ID)] = o.Fault
		case o.State == sink.Rejected:
			h.accused++
			open = append(open, call[i])
		default:
			open = append(open, call[i])
		}
	}
	return append(open, rest...)
}

// brokenContract names the clause of sink.Sink's contract that a call has broken: the suite's, and
// those of a key in a topic.
func brokenContract(call []*event.Event, outcomes []sink.Outcome, err error) string {
	type group struct {
		hash  uint64
		topic string
	}
	rejected, skipped := map[group]bool{}, map[group]bool{}
	for i, o := range outcomes {
		c := group{call[i].Hash, ""}
		if columns := call[i].Columns; len(columns) > 0 {
			c.topic = string(columns[0])
		}
		if rejected[c] && o.State == sink.Confirmed {
			return fmt.Sprintf("event %d was confirmed behind a rejected one of its key and topic", i)
		}
		if o.State == sink.Rejected && skipped[c] && err == nil {
			return fmt.Sprintf("event %d was rejected, and an earlier one of its key and topic was not sent", i)
		}
		rejected[c] = rejected[c] || o.State == sink.Rejected
		skipped[c] = skipped[c] || o.State == sink.Unsent && !rejected[c]
	}
	return sinktest.Broken(outcomes, err)
}

// check compares what was stored with what was published.
func (h *history) check(p plan, events []*event.Event) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	first, stored := map[string]int{}, map[string]int{}
	for _, r := range h.m.appends {
		if r.lost {
			continue
		}
		if _, ok := first[r.id]; !ok {
			first[r.id] = r.at
		}
		stored[r.id]++
	}
	last, duplicates := map[string]int{}, 0
	for _, ev := range events {
		id, key := string(ev.ID), string(ev.Key)+"/"+string(ev.Aggregate)
		fault := h.rejected[id]
		if poisoned := ev.Type != nil; poisoned != (fault != nil) {
			h.t.Errorf("event %s of key %s: fault %v", id, key, fault)
		}
		if fault != nil {
			if stored[id] > 0 {
				h.t.Errorf("event %s was rejected and is stored", id)
			}
			continue
		}
		if stored[id] == 0 && h.m.old[id] {
			continue // it was taken back, or was in doubt then
		}
		if stored[id] == 0 {
			h.t.Errorf("event %s of key %s is lost", id, key)
			continue
		}
		duplicates += stored[id] - 1
		if first[id] < last[key] {
			h.t.Errorf("event %s of key %s arrived before an earlier one of its key", id, key)
		}
		last[key] = first[id]
	}
	if h.accused > 0 && p.blameless {
		h.t.Errorf("%d events were rejected for their destination's fault", h.accused)
	}
	if duplicates > 0 && !p.duplicates {
		h.t.Errorf("%d duplicates", duplicates)
	}
	h.t.Logf("%d events, %d requests, %d duplicates, %d rejected, %d times given up", len(events), h.m.requests, duplicates, len(h.rejected), h.accused)
}

// wait lets up to d go by; false when the chaos is to end.
func (h *history) wait(rng *rand.Rand, d time.Duration) bool {
	return kafkaclient.Sleep(h.ctx, time.Duration(rng.Int64N(int64(d))))
}

func (h *history) chaosRNG(n uint64) *rand.Rand {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	return rand.New(rand.NewPCG(h.m.rng.Uint64(), n))
}

func (h *history) nodesComeAndGo() {
	rng := h.chaosRNG(4)
	for h.wait(rng, 5*time.Second) {
		id := int32(1 + rng.IntN(len(h.m.nodes)))
		election := time.Duration(rng.IntN(2000)) * time.Millisecond
		if frozen := rng.IntN(3) == 0; frozen {
			h.m.turn(id, false, true, election)
		} else {
			h.m.turn(id, true, false, election)
		}
		h.wait(rng, 10*time.Second)
		h.m.turn(id, false, false, 0)
	}
}

func (h *history) partitionsGrow() {
	rng := h.chaosRNG(5)
	for h.wait(rng, 5*time.Second) {
		h.m.change(func() {
			if topic := h.m.topics["topic-0"]; topic != nil && len(topic.partitions) < 16 {
				h.m.grow("topic-0", len(topic.partitions)+1+rng.IntN(3))
			}
		})
	}
}

func (h *history) topicsAreRemade() {
	rng := h.chaosRNG(6)
	for h.wait(rng, 10*time.Second) {
		h.m.change(func() { delete(h.m.topics, "topic-0") })
		if rng.IntN(2) == 0 {
			h.wait(rng, 5*time.Second)
		}
		h.m.change(func() { h.m.create("topic-0", 1+rng.IntN(6)) })
	}
}

// storageIsTakenBack stops all nodes, and starts them with the storage of the beginning.
func (h *history) storageIsTakenBack() {
	rng := h.chaosRNG(8)
	nodes := slices.Sorted(maps.Keys(h.m.nodes))
	for h.wait(rng, 20*time.Second) {
		for _, id := range nodes {
			h.m.turn(id, true, false, time.Hour)
			goBy(time.Duration(rng.IntN(1000)) * time.Millisecond)
		}
		h.m.change(h.m.takeBack)
		for _, id := range nodes {
			h.m.turn(id, false, false, 0)
			goBy(time.Duration(rng.IntN(1000)) * time.Millisecond)
		}
	}
}

func (h *history) destinationsFail() {
	rng := h.chaosRNG(7)
	set := func(kind int, name string, bad bool) {
		h.m.change(func() {
			topic := h.m.topics[name]
			switch {
			case topic == nil:
			case kind == 0:
				topic.denied = bad
			case kind == 1:
				topic.partitions[0].tooFew = bad
			case kind == 2 && bad:
				topic.partitions[0].leader = kafkaclient.None
				topic.partitions[0].epoch++
			case kind == 2:
				h.m.elect(topic.partitions[0])
			}
		})
	}
	for h.wait(rng, 5*time.Second) {
		kind, name := rng.IntN(3), fmt.Sprint("topic-", rng.IntN(2))
		set(kind, name, true)
		h.wait(rng, 25*time.Second)
		set(kind, name, false)
	}
}

// tooFewEverywhere has no partition take anything for a while. They recover one after the other,
// and have time to: the beginning of an outage shows only when what was known of the others is old.
// So two outages that follow each other closely are one trouble of the partition that recovers
// last.
func (h *history) tooFewEverywhere() {
	rng := h.chaosRNG(9)
	for kafkaclient.Sleep(h.ctx, 10*time.Second) && h.wait(rng, 5*time.Second) {
		var all []*memPartition
		h.m.change(func() {
			for _, name := range slices.Sorted(maps.Keys(h.m.topics)) {
				all = append(all, h.m.topics[name].partitions...)
			}
			for _, p := range all {
				p.tooFew = true
			}
		})
		h.wait(rng, 40*time.Second)
		for _, p := range all {
			goBy(time.Duration(rng.IntN(500)) * time.Millisecond)
			h.m.change(func() { p.tooFew = false })
		}
	}
}
