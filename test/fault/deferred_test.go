package fault

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// An event that no queue is bound for is deferred, visibly, and its pair of exchange and routing
// key is paused, and nothing else: the other events flow, the slot goes on. Binding the queue is
// all the fixing there is.
func TestUnroutableEventIsDeferred(t *testing.T) {
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
	row := deferredFor(s, "unroutable")
	if row.ID != id || !strings.Contains(row.Destination, "orphan.placed") || !strings.Contains(row.Words, "NO_ROUTE") {
		t.Errorf("deferred is %+v, want event %s, its routing key, and the broker's words", row, id)
	}
	paused := pausedFor(s, r, "unroutable")
	if !strings.Contains(paused.Destination, "orphan.placed") || !strings.Contains(paused.Words, "NO_ROUTE") {
		t.Errorf("paused is %+v, want the routing key and the broker's words", paused)
	}
	before := s.Flush()
	s.Write(300)
	s.Must(s.Consumer.WaitCount(s.Context(), s.Committed()))
	s.Until("the slot to go on", func() bool { return s.Flush() > before })
	code, body := s.Readyz(r)
	if code != 200 || !strings.Contains(body, "orphan.placed") || !strings.Contains(body, "NO_ROUTE") {
		t.Errorf("/readyz is %d: %s", code, body)
	}
	counted(s, r, "cdc_relay_deferred_events", 1)
	named(s, r, "orphan.placed")

	s.Bind("outbox.events", "#")
	s.Check(0)
	fixed(s, r)
}

// What is deferred survives the relay: a stop is a clean one, and the next start has it again and
// delivers it when its destination is there.
func TestDeferredEventSurvivesAStop(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t, stand.SharedKafkaWith(t, stand.Topics{None: true}))
	r := s.StartWatched()
	s.Write(30)
	deferredFor(s, "no_topic")
	s.AwaitRows(checker.Deferred, s.Committed())
	stopped(s, r, 0)
	if again := s.Unreported(); again > 0 {
		t.Errorf("%d events are sent again after a clean stop", again)
	}
	s.SQL(`UPDATE cdc_relay.retry SET commit_time = now() - interval '1 hour'`)
	r = s.Start()
	pausedFor(s, r, "no_topic")
	aged(s, r, "cdc_relay_deferred_oldest_age_seconds", time.Hour)
	s.Write(30)
	s.AwaitRows(checker.Deferred, s.Committed())
	s.Must(s.Kafka.Cluster.CreateTopic(s.Context(), s.Kafka.Topic("order"), 3, 1, nil))
	s.Check(0)
	fixed(s, r)
}

// aged waits until the metrics tell of an age, and at most an hour more.
func aged(s *stand.Stand, r *runner.Relay, name string, d time.Duration) {
	s.T.Helper()
	s.Until(fmt.Sprintf("%s to be %s", name, d), func() bool {
		value := s.Metric(r, name)
		return value >= d.Seconds() && value < (d+time.Hour).Seconds()
	})
}

// deferredRow is a row of the retry table.
type deferredRow struct{ ID, Destination, Reason, Words string }

// deferredFor waits until an event is deferred that was refused for a reason, and returns the first
// one.
func deferredFor(s *stand.Stand, reason string) (found deferredRow) {
	s.T.Helper()
	s.Until("an event to be deferred: "+reason, func() bool {
		s.Query([]any{&found.ID, &found.Destination, &found.Reason, &found.Words}, `SELECT coalesce(min(first.id), ''), coalesce(min(destination), ''), coalesce(min(reason), ''), coalesce(min(error), '')
			FROM (SELECT convert_from(r.id, 'UTF8') AS id, destination, reason, error FROM cdc_relay.retry r
				WHERE r.slot = $1 AND reason = $2 ORDER BY commit_lsn, idx LIMIT 1) first`, s.Slot, reason)
		return found.ID != ""
	})
	return found
}

// pausedFor waits until a destination is paused for a reason, and returns it.
func pausedFor(s *stand.Stand, r *runner.Relay, reason string) (found pausedDestination) {
	s.T.Helper()
	s.Until("a destination to be paused: "+reason, func() bool {
		for _, paused := range status(s, r).Broker.Paused {
			if paused.Reason == reason {
				found = paused
				return true
			}
		}
		return false
	})
	return found
}

// fixed waits until the relay says that nothing is paused, held or deferred any more.
func fixed(s *stand.Stand, r *runner.Relay) {
	s.T.Helper()
	s.Until("nothing to be paused, held or deferred", func() bool {
		st := status(s, r)
		return st.Deferred.Events == 0 && st.Deferred.WaitingKeys == 0 && len(st.Broker.Paused) == 0 && s.Metric(r, "cdc_relay_destinations_paused") == 0 &&
			s.Metric(r, "cdc_relay_deferred_events") == 0 && s.Metric(r, "cdc_relay_deferred_oldest_age_seconds") == 0
	})
}

// named checks that the log names a destination, and does so a few times, not for each event.
func named(s *stand.Stand, r *runner.Relay, destination string) {
	s.T.Helper()
	lines := 0
	for line := range strings.Lines(r.Log()) {
		if strings.Contains(line, destination) {
			lines++
		}
	}
	if lines == 0 || lines > 20 {
		s.T.Errorf("%d lines of the log name %s, want a few", lines, destination)
	}
}
