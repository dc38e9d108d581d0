//go:build testall

package fault

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// An exchange that keeps messages back answers NO_ROUTE for each of them: with unroutable: ignore
// every event arrives once, and the next of its key does not wait.
func TestDelayedEventsArriveOnce(t *testing.T) {
	stand.Parallel(t)
	server := servers.OwnRabbitMQ(t)
	s := stand.New(t, stand.OnRabbitMQ(server))
	s.Must(server.AddKeepers(s.Context()))
	s.AMQP(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare("reminders", "x-delayed-message", true, false, false, false, nil); err != nil {
			return err
		}
		return ch.QueueBind("orders", "#", "reminders", false, nil)
	})
	s.SQL(`ALTER TABLE outbox ADD COLUMN IF NOT EXISTS headers jsonb`)
	s.Sink = "exchange: reminders, allow_headers: [x-delay], unroutable: ignore"
	r := s.Start() // unwatched: the slot moves before the queue has them
	s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers)
		SELECT gen_random_uuid(), 'order', 'k', 'reminder', jsonb_build_object('key', 'k', 'seq', n), '{"x-delay": 500}' FROM generate_series(1, 3) n`)
	s.Check(0)
	if n := s.Metric(r, "outbox_sink_ignored_returns_total"); n != 3 {
		t.Errorf("%g returns are counted, want 3", n)
	}
	if n := s.Metric(r, "outbox_deferred_events"); n != 0 {
		t.Errorf("%g events are deferred", n)
	}
	stopped(s, r, 0)
}
