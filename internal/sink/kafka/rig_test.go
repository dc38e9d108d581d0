package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	kafkago "github.com/segmentio/kafka-go"
	"go.uber.org/zap/zaptest"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// topicWith makes a topic for one test, which is deleted with it.
func topicWith(t testing.TB, k *kafkaserver.Kafka, partitions, replicas int, configs map[string]string) string {
	t.Helper()
	name := unused()
	create(t, k, name, partitions, replicas, configs)
	return name
}

// unused is the name of no topic, whoever else uses the cluster.
func unused() string { return "t" + strings.ToLower(rand.Text()[:12]) }

// create makes a topic that is deleted when the test ends, unless it is gone by then.
func create(t testing.TB, k *kafkaserver.Kafka, name string, partitions, replicas int, configs map[string]string) {
	t.Helper()
	must(t, k.CreateTopic(context.Background(), name, partitions, replicas, configs))
	t.Cleanup(func() { remove(t, k, name) })
}

func remove(t testing.TB, k *kafkaserver.Kafka, topic string) {
	if err := k.DeleteTopic(context.Background(), topic); err != nil && !errors.Is(err, kafkago.UnknownTopicOrPartition) {
		t.Error(err)
	}
}

// running is a sink with its Run, which ends with the test.
type running struct {
	*Sink
	t    testing.TB
	stop context.CancelFunc
	done chan error
}

// toTopic has the events' topic, which may name their one extra column, topic.
func toTopic(t testing.TB, template string) RecordConfig {
	return RecordConfig{Topic: parseTemplate(t, template), PlainConfig: sink.PlainConfig{Columns: []string{"topic"}}}
}

// start runs a sink. A Config without a topic takes it from the events' first extra column.
func start(t testing.TB, cfg Config) *running {
	t.Helper()
	if cfg.Topic.String() == "" {
		cfg.RecordConfig = toTopic(t, "{column:topic}")
	}
	if cfg.Log == nil {
		cfg.Log = zaptest.NewLogger(t)
	}
	s, err := New(cfg)
	must(t, err)
	return startSink(t, s)
}

func startSink(t testing.TB, s *Sink) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Sink: s, t: t, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		err := <-r.done
		r.done <- err
		var stop *event.Stop
		if err != nil && !errors.As(err, &stop) {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// laneOf waits for an event's lane.
func (r *running) laneOf(ev *event.Event) int {
	r.t.Helper()
	for {
		if p, ok := r.Place(ev); ok {
			return p.Lane
		}
		<-r.Changed()
	}
}

// try publishes events, each on its lane, in one call a lane.
func (r *running) try(ctx context.Context, events ...*event.Event) ([]sink.Outcome, error) {
	r.t.Helper()
	byLane := map[int][]int{}
	for i, ev := range events {
		lane := r.laneOf(ev)
		byLane[lane] = append(byLane[lane], i)
	}
	outcomes, errs := make([]sink.Outcome, len(events)), make([]error, len(events))
	var calls sync.WaitGroup
	for lane, places := range byLane {
		calls.Go(func() {
			call, got := make([]*event.Event, len(places)), make([]sink.Outcome, len(places))
			for n, i := range places {
				call[n] = events[i]
			}
			errs[places[0]] = r.Publish(ctx, lane, call, got)
			if fault := brokenContract(call, got, errs[places[0]]); fault != "" {
				r.t.Errorf("the contract is broken: %s", fault)
			}
			for n, i := range places {
				outcomes[i] = got[n]
			}
		})
	}
	calls.Wait()
	return outcomes, errors.Join(errs...)
}

// send is try that wants no error.
func (r *running) send(events ...*event.Event) []sink.Outcome {
	r.t.Helper()
	outcomes, err := r.try(context.Background(), events...)
	if err != nil {
		r.t.Errorf("publish: %v", err)
	}
	return outcomes
}

// probe probes with an event, and wants no error.
func (r *running) probe(ev *event.Event, suspect bool) sink.Outcome {
	r.t.Helper()
	out, err := r.Probe(context.Background(), ev, suspect)
	if err != nil {
		r.t.Errorf("probe: %v", err)
	}
	return out
}

var lastPosition atomic.Uint64

// newEvent is one with a position of its own, for a topic.
func newEvent(topic, key string) *event.Event {
	n := lastPosition.Add(1)
	ev := plainEvent(int(n), key)
	ev.Position = event.Position{Commit: pglogrepl.LSN(n << 8)}
	ev.ID = fmt.Appendf(nil, "id-%d", n)
	ev.Time = time.Now()
	ev.Columns = [][]byte{[]byte(topic)}
	ev.Hash = n
	return ev
}

// events have a key each.
func events(n int, topic string) (all []*event.Event) {
	for i := range n {
		all = append(all, newEvent(topic, fmt.Sprint("key-", i)))
	}
	return all
}

// wantConfirmed wants every outcome confirmed but those at the places given.
func wantConfirmed(t testing.TB, outcomes []sink.Outcome, but ...int) {
	t.Helper()
	exempt := map[int]bool{}
	for _, i := range but {
		exempt[i] = true
	}
	for i, o := range outcomes {
		if o.State != sink.Confirmed && !exempt[i] {
			t.Fatalf("event %d of %d: %s %v", i, len(outcomes), o.State, o.Fault)
		}
	}
}

// wantRejected wants one outcome rejected for a reason and class.
func wantRejected(t testing.TB, o sink.Outcome, class sink.Class, reason sink.Reason) {
	t.Helper()
	if o.State != sink.Rejected || o.Fault == nil || o.Fault.Class != class || o.Fault.Reason != reason {
		t.Fatalf("got %s %+v, want rejected, %s, %s", o.State, o.Fault, class, reason)
	}
}

// wantStored wants the events in their topic, each once, and nothing else.
func wantStored(t testing.TB, k *kafkaserver.Kafka, topic string, events ...*event.Event) {
	t.Helper()
	records, err := k.Records(await.Context(t), topic)
	must(t, err)
	stored := map[string]int{}
	for _, r := range records {
		stored[r.Header(HeaderID)]++
	}
	for _, ev := range events {
		if n := stored[string(ev.ID)]; n != 1 {
			t.Errorf("event %s is stored %d times", ev.ID, n)
		}
	}
	if len(records) != len(events) {
		t.Errorf("%d records for %d events", len(records), len(events))
	}
}
