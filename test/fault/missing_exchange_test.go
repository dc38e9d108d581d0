package fault

import (
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// Two queues are bound, the exchange is deleted with their bindings, and events come. The relay
// does not make the exchange again. One that is started meanwhile, and declares it, waits as well.
// Whoever makes it binds the queues one after the other, and nothing goes before an operator says
// that all are bound: then both get everything.
func TestMissingExchangeWaitsForAllQueues(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t, stand.SharedRabbitMQ(t))
	s.Sink = "declare: true"
	s.MakeQueue("second", orders, "#", nil)
	r := s.Start()
	s.Deliver(5)
	s.DeleteExchange(orders)
	before := s.Committed()
	s.Write(20)
	waiting := s.Committed() - before
	s.AwaitRows(checker.Deferred, waiting)
	said := operated(s, "status", "--admin", r.AdminSocket()).Stdout
	for where, text := range map[string]string{"the status": said, "the log": r.Log()} {
		if !strings.Contains(text, "no_exchange") || !strings.Contains(text, "bind all queues, then cdc-relay deferred retry --all") {
			t.Errorf("%s does not say what to do: %s", where, text)
		}
	}
	longPaused(s, r, 2*time.Second, waiting) // a relay that asks has asked
	if hasExchange(s) {
		t.Error("a running relay has declared the exchange")
	}
	stopped(s, r, 0)
	r = s.Start()
	pausedFor(s, r, "no_exchange")
	if !hasExchange(s) {
		t.Error("the exchange is not declared at the start")
	}
	s.Bind(orders, "#")
	longPaused(s, r, 4*time.Second, waiting)
	s.AMQP(func(ch *amqp.Channel) error { return ch.QueueBind("second", "#", orders, false, nil) })
	operated(s, "deferred", "retry", "--all")
	s.Check(0)
	fixed(s, r)
	s.Until("the second queue to have all", func() bool { return depth(s, "second") == s.Committed() })
	stopped(s, r, 0)
}

// The queues of sink.rabbitmq.bindings are bound before a paused exchange resumes, which needs no
// operator then.
func TestListedQueuesMissNothing(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t, stand.SharedRabbitMQ(t))
	s.Sink = "bindings: [{queue: orders, key: '#'}, {queue: second}]"
	r := s.Start()
	s.Deliver(5)
	s.DeleteExchange(orders)
	s.Write(20)
	s.Until("events to be deferred", func() bool { return s.RowsIn(checker.Deferred) > 0 })
	if paused := pausedFor(s, r, "no_exchange"); strings.Contains(paused.Words, "deferred retry") {
		t.Errorf("paused is %+v, and no operator is needed", paused)
	}
	s.DeclareExchange(orders)
	s.Check(0)
	fixed(s, r)
	s.Until("the second queue to have all", func() bool { return depth(s, "second") == s.Committed() })
	stopped(s, r, 0)
}

// longPaused waits until a destination has been paused for some time, and all that waits is there.
func longPaused(s *stand.Stand, r *runner.Relay, d time.Duration, waiting int) {
	s.T.Helper()
	s.Until("a pause to last", func() bool {
		paused := status(s, r).Broker.Paused
		return len(paused) == 1 && time.Since(paused[0].Since) > d
	})
	if n := s.RowsIn(checker.Deferred); n != waiting {
		s.T.Errorf("%d events are deferred, want %d: nothing is sent", n, waiting)
	}
}

func hasExchange(s *stand.Stand) (is bool) {
	s.AMQP(func(ch *amqp.Channel) error {
		err := ch.ExchangeDeclarePassive(orders, "topic", true, false, false, false, nil)
		var missing *amqp.Error
		if is = err == nil; errors.As(err, &missing) && missing.Code == amqp.NotFound {
			return nil
		}
		return err
	})
	return is
}

func depth(s *stand.Stand, queue string) (n int) {
	s.AMQP(func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		n = q.Messages
		return err
	})
	return n
}
