package fault

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// An event that no queue is bound for holds its lane, visibly, and nothing else: the other lanes flow. Binding the queue
// is all the mending there is.
func TestUnroutableEventHolds(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t, stand.SharedRabbitMQ(t))
	s.WatchFlush()
	s.AMQP(func(ch *amqp.Channel) error {
		if err := ch.QueueBind("orders", "order.#", "outbox.events", false, nil); err != nil {
			return err
		}
		return ch.QueueUnbind("orders", "#", "outbox.events", nil)
	})
	r := s.Start()
	s.SQL(stand.Insert("outbox", "orphan", "of-the-storm"))
	var id string
	s.Query([]any{&id}, `SELECT id FROM outbox WHERE aggregatetype = 'orphan'`)
	s.Until(30*time.Second, "the event to be held", func() bool { return status(s, r).HeldTotal == 1 })

	s.Write(300)
	s.Must(s.Consumer.WaitCount(s.Within(30*time.Second), s.Committed()/2)) // one lane of 32, of 20 keys
	held := status(s, r).Held[0]
	if held.ID != id || !strings.Contains(held.Destination, "orphan.placed") || !strings.Contains(held.Words, "NO_ROUTE") {
		t.Errorf("held is %+v, want event %s, its routing key, and the broker's words", held, id)
	}
	code, body, err := r.Get(s.Within(10*time.Second), "/readyz")
	s.Must(err)
	if code != 200 || !strings.Contains(body, id) || !strings.Contains(body, "orphan.placed") || !strings.Contains(body, "NO_ROUTE") {
		t.Errorf("/readyz is %d: %s", code, body)
	}
	s.Until(30*time.Second, "some attempts", func() bool { return status(s, r).Held[0].Attempts >= 3 })
	lines := 0
	for line := range strings.Lines(r.Log()) {
		if strings.Contains(line, id) {
			lines++
			if !strings.Contains(line, "orphan.placed") || !strings.Contains(line, "NO_ROUTE") {
				t.Errorf("the log line does not say all: %s", line)
			}
		}
	}
	if lines != 1 {
		t.Errorf("%d lines of the log name the event, want 1", lines)
	}

	s.AMQP(func(ch *amqp.Channel) error { return ch.QueueBind("orders", "#", "outbox.events", false, nil) })
	s.Check(0)
	s.Until(30*time.Second, "nothing to be held", func() bool { return status(s, r).HeldTotal == 0 })
}

// An exchange that does not exist yet holds everything that goes there, and names it; creating it is all the mending.
func TestMissingExchangeHolds(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t, stand.SharedRabbitMQ(t))
	s.WatchFlush()
	s.Sink = "exchange: later.events"
	r := s.Start()
	s.Write(100)
	s.Until(30*time.Second, "events to be held", func() bool { return status(s, r).HeldTotal > 0 })
	held := status(s, r).Held[0]
	if held.Reason != "no_exchange" || !strings.Contains(held.Destination, "later.events") || !strings.Contains(held.Words, "NOT_FOUND") {
		t.Errorf("held is %+v, want the exchange and the broker's words", held)
	}
	if n, _ := s.Consumer.Count(); n != 0 {
		t.Errorf("%d events have arrived without an exchange", n)
	}
	s.AMQP(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare("later.events", "topic", true, false, false, false, nil); err != nil {
			return err
		}
		return ch.QueueBind("orders", "#", "later.events", false, nil)
	})
	s.Check(0)
	s.Until(30*time.Second, "nothing to be held", func() bool { return status(s, r).HeldTotal == 0 })
}

// What is held survives the relay: it is not reported, so a stop says that it was cut, and the next start has it again, holds
// it again, and delivers it when its destination is there.
func TestHeldEventSurvivesAStop(t *testing.T) {
	t.Parallel()
	t.Run("RabbitMQ", func(t *testing.T) {
		stand.Parallel(t)
		s := stand.New(t, stand.SharedRabbitMQ(t))
		s.AMQP(func(ch *amqp.Channel) error { return ch.QueueUnbind("orders", "#", "outbox.events", nil) })
		heldSurvivesAStop(s, "unroutable", func() {
			s.AMQP(func(ch *amqp.Channel) error { return ch.QueueBind("orders", "#", "outbox.events", false, nil) })
		})
	})
	t.Run("Kafka", func(t *testing.T) {
		stand.Parallel(t)
		s := stand.New(t, stand.SharedKafkaWith(t, stand.Topics{None: true}))
		heldSurvivesAStop(s, "no_topic", func() {
			s.Must(s.Kafka.Cluster.CreateTopic(s.Within(time.Minute), s.Kafka.Topic("order"), 3, 1, nil))
		})
	})
}

func heldSurvivesAStop(s *stand.Stand, reason string, mend func()) {
	s.T.Helper()
	s.Delivery = "shutdown_grace: 1s"
	s.WatchFlush()
	r := s.Start()
	s.Write(30)
	heldFor(s, r, reason)
	stopped(s, r, 5)
	r = s.Start()
	heldFor(s, r, reason)
	mend()
	s.Check(0)
	s.Until(30*time.Second, "nothing to be held", func() bool { return status(s, r).HeldTotal == 0 })
}

// heldFor waits until an event is held for a reason, and returns it.
func heldFor(s *stand.Stand, r *devenv.Relay, reason string) (found heldEvent) {
	s.T.Helper()
	s.Until(time.Minute, "an event to be held: "+reason, func() bool {
		for _, held := range status(s, r).Held {
			if held.Reason == reason {
				found = held
				return true
			}
		}
		return false
	})
	return found
}
