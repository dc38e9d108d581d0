package fault

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// An event that is itself at fault is a dead letter at once, and nothing else is; its key goes on.

// poisoned is a stand under load some of whose rows are too large for the broker.
type poisoned struct {
	*stand.Stand
	antidote func() // raises the limit
}

// tooLarge is a payload over the limits of both kinds of broker, small one under them.
const tooLarge, limit = 20_000, 10_000

// onPoisonedKafka runs a test on a topic that takes no message over limit bytes.
func onPoisonedKafka(t *testing.T, test func(poisoned)) {
	t.Helper()
	t.Parallel()
	t.Run("Kafka", func(t *testing.T) {
		stand.Parallel(t)
		s := stand.New(t, stand.SharedKafkaWith(t, stand.Topics{Configs: map[string]string{"max.message.bytes": fmt.Sprint(limit)}}))
		test(poisoned{s, func() {
			s.Must(s.Kafka.Cluster.SetTopicConfig(s.Context(), s.Kafka.Topic("order"), "max.message.bytes", fmt.Sprint(10*tooLarge)))
		}})
	})
}

// poisonedOnRabbitMQ is a stand on a server that takes no message over limit bytes.
func poisonedOnRabbitMQ(t *testing.T, rmq *rabbitserver.Rabbit) poisoned {
	t.Helper()
	s := stand.New(t, stand.OnRabbitMQ(rmq))
	return poisoned{s, func() {
		s.Must(rmq.SetMaxMessageSize(s.Context(), 10*tooLarge))
		s.Broker.Reset() // for channels opened afterwards
	}}
}

// deadLetters are the ids of all rows that are too large; they are dead letters, each of them and
// no other row.
func (p poisoned) deadLetters() (ids []string) {
	p.T.Helper()
	p.Query([]any{&ids}, `SELECT coalesce(array_agg(id::text ORDER BY id), '{}') FROM outbox WHERE length(payload::text) >= $1`, tooLarge)
	p.AwaitRows(checker.Open, len(ids))
	dead := p.RetryRowIDs(checker.Open)
	slices.Sort(dead)
	if !slices.Equal(dead, ids) {
		p.T.Errorf("%d events are too large, and %d are dead letters", len(ids), len(dead))
	}
	return ids
}

// One of a hundred is too large: the others are delivered, in order. When the broker's limit was
// raised one command replays the dead letters; they say that they are replayed.
func tooLargeAmongSmall(p poisoned) {
	p.T.Helper()
	p.Kinds = []load.Kind{{Share: 0.02, Payload: tooLarge}}
	p.WatchFlush()
	r := p.Start()
	stop := p.Load(300)
	p.AwaitRows(checker.Open, 10)
	p.More(200)
	stop()
	ids := p.deadLetters()
	v := p.CheckHistory(checker.History{MaxDuplicates: p.Repeats(len(ids) * p.Keys), MaxDead: len(ids)})
	if len(v.Dead) != len(ids) {
		p.T.Errorf("%d dead letters by the checker, want %d", len(v.Dead), len(ids))
	}
	if n := metric(p.Stand, r, `outbox_rejections_total{class="permanent",reason="too_large"}`); int(n) < len(ids) {
		p.T.Errorf("%g rejections are counted, want %d", n, len(ids))
	}
	counted(p.Stand, r, "outbox_dead_letters", len(ids))

	p.antidote()
	operated(p.Stand, "dead-letters", "replay", "--all", "--class", "permanent", "--reason", "the limit was raised")
	p.AwaitRows(checker.Replayed, len(ids))
	v = p.CheckHistory(checker.History{MaxDuplicates: p.Repeats((2*len(ids) + 1) * p.Keys)})
	if len(v.Replayed) != len(ids) {
		p.T.Errorf("%d dead letters are replayed, want %d", len(v.Replayed), len(ids))
	}
	stopped(p.Stand, r, 0)
}
