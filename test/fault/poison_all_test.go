//go:build testall

package fault

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// On RabbitMQ, where a message that is too large costs its channel, this is part of TestBroker.
func TestTooLargeAmongSmall(t *testing.T) { onPoisonedKafka(t, tooLargeAmongSmall) }

// All events of one key of a thousand are poison, under load: the other keys do not notice, nor
// does the slot, and nothing is deferred in the end.
func TestOnePoisonKeyAmongAThousand(t *testing.T) {
	onPoisonedKafka(t, func(p poisoned) {
		p.Keys = 1000
		p.Kinds = []load.Kind{{Share: 1, Keys: 1, Payload: tooLarge}}
		p.WatchFlush()
		r := p.Start()
		stop := p.Load(500)
		p.More(1500)
		stop()
		ids := p.deadLetters()
		if len(ids) == 0 {
			p.T.Fatal("the key has no events")
		}
		for _, id := range ids {
			p.Must(r.WaitLog(p.Context(), id)) // it is told when the dead letter is there
		}
		p.CheckHistory(checker.History{MaxDuplicates: p.Repeats(p.Keys / 10), MaxDead: len(ids)})
		p.Reported()
		stopped(p.Stand, r, 0)
	})
}

// The same with on_dead_letter: block. What follows a poison event of its key waits, under load,
// until it is replayed: then everything comes in order, the dead letters in their turn.
func TestTooLargeHoldsItsKey(t *testing.T) {
	onPoisonedKafka(t, func(p poisoned) {
		p.Keys = 50
		p.DeadLetters = "on_dead_letter: block"
		p.Kinds = []load.Kind{{Share: 0.05, Payload: tooLarge}}
		p.WatchFlush()
		r := p.Start()
		stop := p.Load(200)
		p.AwaitRows(checker.Open, 10)
		p.AwaitRows(checker.Deferred, 50)
		stop()
		p.antidote()
		// each gives way to what it held, poison too
		p.Until("all dead letters to be replayed", func() bool {
			operated(p.Stand, "dead-letters", "replay", "--all", "--reason", "the limit was raised")
			return p.RowsIn(checker.Open) == 0 && p.RowsIn(checker.Deferred) == 0
		})
		p.CheckHistory(checker.History{MaxDuplicates: p.Repeats(p.Keys), Block: true})
		stopped(p.Stand, r, 0)
	})
}

// What is deferred is stored byte for byte: NUL bytes, keys that no index takes, headers that jsonb
// refuses. What cannot be sent at all dies with all that it was.
func TestExtremeEventsAreDeferred(t *testing.T) {
	t.Parallel()
	t.Run("RabbitMQ", func(t *testing.T) {
		stand.Parallel(t)
		s := stand.Bare(t, servers.SharedPostgres(t), stand.SharedRabbitMQ(t))
		s.Sink = "exchange: later.events"
		bodies := func(n int) map[string][]byte {
			// What the exchange takes goes to both queues, from its first message on.
			take := bodiesOf(s, "both")
			s.Bind("both", "#")
			s.AMQP(func(ch *amqp.Channel) error {
				if err := ch.ExchangeDeclare("later.events", "topic", true, false, false, false, nil); err != nil {
					return err
				}
				return ch.ExchangeBind("both", "#", "later.events", false, nil)
			})
			return take(n)
		}
		// The key is in a header: all of a message's fit a frame, of 128 KiB less what the others
		// need.
		extremeEventsAreDeferred(s, 128_000, 128<<10, bodies)
	})
	t.Run("Kafka", func(t *testing.T) {
		stand.Parallel(t)
		s := stand.Bare(t, servers.SharedPostgres(t), stand.SharedKafkaWith(t, stand.Topics{None: true}))
		extremeEventsAreDeferred(s, 128<<10, 0, func(n int) map[string][]byte {
			s.Must(s.Kafka.Cluster.CreateTopic(s.Context(), s.Kafka.Topic("order"), 3, 1, nil))
			s.Must(s.Consumer.WaitCount(s.Context(), n))
			got := map[string][]byte{}
			for _, record := range s.Kafka.Records("order") {
				got[record.Header("id")] = record.Value
			}
			return got
		})
	})
}

// extremeEventsAreDeferred defers events at a destination that is not there, with a key of so many
// bytes among them. bodies makes it, and returns what has arrived. A key of deadly bytes is one
// that cannot be sent; 0: there is none.
func extremeEventsAreDeferred(s *stand.Stand, long, deadly int, bodies func(n int) map[string][]byte) {
	s.T.Helper()
	s.SQL(strings.Replace(binaryOutbox, "jsonb", "json", 1))
	s.WatchFlush()
	r := s.Start()
	deferred := map[string][]byte{
		"NUL":                         {0, 'a', 0, 0xff, 0},
		"a key of 128 KB":             []byte("x"),
		"empty":                       {},
		"a header that jsonb refuses": []byte("x"),
	}
	h := checker.History{MaxDuplicates: 0}
	insert := func(id, key string, payload []byte, headers any) {
		s.SQL(`INSERT INTO outbox VALUES ($1, 'order', $2, 't', $3, $4)`, id, key, payload, headers)
		h.Committed = append(h.Committed, checker.Row{ID: id, Aggregate: "order", Key: key, Seq: 1})
	}
	for id, payload := range deferred {
		key, headers := id, any(nil)
		switch id {
		case "a key of 128 KB":
			key = strings.Repeat("k", long)
		case "a header that jsonb refuses":
			headers = `{"nul": "\u0000", "twice": 1, "twice": 2}`
		}
		insert(id, key, payload, headers)
	}
	for i := range 20 {
		id := fmt.Sprint("after ", i)
		deferred[id] = []byte(id)
		insert(id, id, deferred[id], nil)
	}
	s.AwaitRows(checker.Deferred, len(deferred))
	got := bodies(len(deferred))
	for id, want := range deferred {
		if body, ok := got[id]; !ok || string(body) != string(want) {
			s.T.Errorf("%s: arrived %t with %d bytes, want %d", id, ok, len(body), len(want))
		}
	}
	s.AwaitEmpty()
	if n := s.RowsIn(checker.Open); n > 0 {
		s.T.Errorf("%d dead letters, want none", n)
	}
	if deadly > 0 {
		insert("deadly", strings.Repeat("k", deadly), []byte("x"), nil)
		h.MaxDead = 1
		s.AwaitRows(checker.Open, 1)
		var key, payload int
		var reason string
		s.Query([]any{&key, &payload, &reason}, `SELECT length(key), length(payload), reason FROM cdc_relay.dead_letter`)
		if key != deadly || payload != 1 || reason != "too_large" {
			s.T.Errorf("the dead letter has a key of %d bytes, a payload of %d, and died of %s", key, payload, reason)
		}
	}
	s.CheckHistory(h)
	stopped(s, r, 0)
}
