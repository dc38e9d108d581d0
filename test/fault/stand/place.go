// Places: the brokers that a test runs on.

package stand

import (
	"context"
	"testing"
)

// Place is a broker of either kind, on which each stand opens a place of its own. What differs
// between the kinds is here and in the fields RabbitMQ and Kafka of the stand.
type Place interface {
	// open makes where the events go, who reads them, and the way there if the place has one.
	open(s *Stand)
	// sink is the sink's section of the relay's configuration, in a flow mapping.
	sink(s *Stand) string
}

// Server is a broker of a test's own, of one node.
type Server interface {
	Place
	Start(ctx context.Context) error
	Kill() error
}

// Kind is a kind of broker, and the one that the tests of a process share.
type Kind struct {
	Name   string
	Shared func(testing.TB) Place
}

// The kinds. A test shows its fact on one of them, and on both only where the sinks differ in it.
var (
	KindRabbitMQ = Kind{"RabbitMQ", SharedRabbitMQ}
	KindKafka    = Kind{"Kafka", SharedKafka}
	Kinds        = []Kind{KindRabbitMQ, KindKafka}
)

// On runs a test on the kind of broker, parallel to others.
func (k Kind) On(t *testing.T, test func(*Stand)) {
	t.Helper()
	t.Parallel()
	k.run(t, test)
}

// OnRouted is On with a stand that routes.
func (k Kind) OnRouted(t *testing.T, test func(*Stand)) {
	t.Helper()
	t.Parallel()
	k.runRouted(t, test)
}

func (k Kind) runRouted(t *testing.T, test func(*Stand)) {
	t.Helper()
	t.Run(k.Name, func(t *testing.T) {
		Parallel(t)
		test(Routed(t, k))
	})
}

func (k Kind) run(t *testing.T, test func(*Stand)) {
	t.Helper()
	t.Run(k.Name, func(t *testing.T) {
		Parallel(t)
		test(New(t, k.Shared(t)))
	})
}

// Repeats is how many events may arrive a second time: so many on RabbitMQ, where what was on the
// wire is sent again. None on Kafka. Over a fault that the relay lives through, its producers are
// idempotent: what is sent again is the same bytes. After a crash what Kafka has is found there.
func (s *Stand) Repeats(onRabbitMQ int) int {
	if s.Kafka != nil {
		return 0
	}
	return onRabbitMQ
}

// RepeatsOver is how many events may arrive a second time because RabbitMQ closes the channel over
// each of so many refusals: what else is on its way there, of which a consumer may have seen a part
// before it is confirmed. With ordering "key" that is one event of each of these keys; twice, since
// not every refusal names the event (docs/guarantees.md#what-arrives-twice).
func (s *Stand) RepeatsOver(refusals, keys int) int { return s.Repeats(2 * refusals * keys) }

// room bounds how many parallel tests share the machine.
var room = make(chan struct{}, 3)

// Parallel runs the test beside at most two others.
func Parallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	room <- struct{}{}
	t.Cleanup(func() { <-room })
}
