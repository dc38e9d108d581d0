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

// All events of one key of a thousand are poison, under load: the other keys do not notice, nor
// does the slot, and nothing is deferred in the end.
func TestOnePoisonKeyAmongAThousand(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t, stand.SharedKafkaWith(t, stand.Topics{Configs: map[string]string{"max.message.bytes": fmt.Sprint(limit)}}))
	s.Keys = 1000
	s.Kinds = []load.Kind{{Share: 1, Keys: 1, Payload: tooLarge}}
	r := s.StartWatched()
	stop := s.Load(500)
	s.More(1500)
	stop()
	ids := tooLargeAreDead(s)
	if len(ids) == 0 {
		s.T.Fatal("the key has no events")
	}
	for _, id := range ids {
		s.Must(r.WaitLog(s.Context(), id)) // it is told when the dead letter is there
	}
	s.CheckHistory(checker.History{MaxDuplicates: s.Repeats(s.Keys / 10), MaxDead: len(ids)})
	s.Reported()
	stopped(s, r, 0)
}

// What is deferred is stored byte for byte: NUL bytes, keys that no index takes, headers that jsonb
// refuses. What cannot be sent at all dies with all that it was.
func TestExtremeEventsAreDeferred(t *testing.T) {
	stand.Parallel(t)
	s := stand.Bare(t, servers.SharedPostgres(t), stand.SharedRabbitMQ(t))
	s.Sink = "exchange: later.events"
	s.DeclareExchange("later.events")
	bodies := func(n int) map[string][]byte {
		// What the exchange takes goes to both queues, from its first message on.
		take := bodiesOf(s, "both")
		s.Bind("both", "#")
		s.AMQP(func(ch *amqp.Channel) error { return ch.ExchangeBind("both", "#", "later.events", false, nil) })
		return take(n)
	}
	// The key is in a header: all of a message's fit a frame, of 128 KiB less what the others
	// need.
	extremeEventsAreDeferred(s, 128_000, 128<<10, bodies)
}

// extremeEventsAreDeferred defers events at a destination that is not there, with a key of so many
// bytes among them. bodies makes it, and returns what has arrived. A key of deadly bytes is one
// that cannot be sent.
func extremeEventsAreDeferred(s *stand.Stand, long, deadly int, bodies func(n int) map[string][]byte) {
	s.T.Helper()
	s.SQL(strings.Replace(binaryOutbox, "jsonb", "json", 1))
	r := s.StartWatched()
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
	insert("deadly", strings.Repeat("k", deadly), []byte("x"), nil)
	h.MaxDead = 1
	s.AwaitRows(checker.Open, 1)
	var key, payload int
	var reason string
	s.Query([]any{&key, &payload, &reason}, `SELECT length(key), length(payload), reason FROM cdc_relay.dead_letter`)
	if key != deadly || payload != 1 || reason != "too_large" {
		s.T.Errorf("the dead letter has a key of %d bytes, a payload of %d, and died of %s", key, payload, reason)
	}
	s.CheckHistory(h)
	stopped(s, r, 0)
}
