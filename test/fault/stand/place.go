package stand

import (
	"context"
	"testing"
)

// Place is a broker of either kind, on which each stand opens a place of its own. What differs between the kinds is here and
// in the fields RabbitMQ and Kafka of the stand.
type Place interface {
	// open makes where the events go, who reads them, and the way there if the place has one.
	open(s *Stand)
	// sink is the sink's section of the relay's configuration, in a flow mapping.
	sink(s *Stand) string
}

// Server is a broker of a test's own, of one node.
type Server interface {
	Place
	Stop(ctx context.Context) error // in order
	Start(ctx context.Context) error
	Kill() error
}

// Kind is a kind of broker, and the one that the tests of a process share.
type Kind struct {
	Name   string
	Shared func(testing.TB) Place
}

// Kinds are all there are. On one of them alone runs what only that kind can do (RabbitMQ's memory alarm, exchanges and
// queues; Kafka's quotas, topics, partitions and leaders), and what is over before a broker has a part in it (commits adjacent in WAL, in internal/replication; the settings of a role).
var Kinds = []Kind{{"RabbitMQ", SharedRabbitMQ}, {"Kafka", SharedKafka}}

// OnEach runs a test on each kind of broker, beside others.
func OnEach(t *testing.T, test func(*Stand)) {
	t.Helper()
	t.Parallel()
	for _, kind := range Kinds {
		t.Run(kind.Name, func(t *testing.T) {
			Parallel(t)
			test(New(t, kind.Shared(t)))
		})
	}
}

// Each runs a test of its own servers on each kind of broker, one after the other.
func Each(t *testing.T, test func(*testing.T, Place)) {
	t.Helper()
	for _, kind := range Kinds {
		t.Run(kind.Name, func(t *testing.T) { test(t, kind.Shared(t)) })
	}
}

// Repeats is how many events may arrive a second time for a fault that the relay lives through: so many on RabbitMQ, where
// what was on the wire is sent again. None on Kafka, whose producers are idempotent: what is sent again is the same bytes.
func (s *Stand) Repeats(onRabbitMQ int) int {
	if s.Kafka != nil {
		return 0
	}
	return onRabbitMQ
}

// room bounds how many parallel tests share the machine.
var room = make(chan struct{}, 3)

// Parallel runs the test beside at most two others.
func Parallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	room <- struct{}{}
	t.Cleanup(func() { <-room })
}
