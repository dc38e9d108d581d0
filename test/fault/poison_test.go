package fault

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// An event that is itself at fault is a dead letter at once, and nothing else is; its key goes on.

// tooLarge is a payload over the limits of both kinds of broker.
const tooLarge, limit = 20_000, 10_000

// tooLargeAreDead are the ids of all rows that are too large; they are dead letters, each of them
// and no other row.
func tooLargeAreDead(s *stand.Stand) (ids []string) {
	s.T.Helper()
	s.Query([]any{&ids}, `SELECT coalesce(array_agg(id::text ORDER BY id), '{}') FROM outbox WHERE length(payload::text) >= $1`, tooLarge)
	s.AwaitRows(checker.Open, len(ids))
	dead := s.RetryRowIDs(checker.Open)
	slices.Sort(dead)
	if !slices.Equal(dead, ids) {
		s.T.Errorf("%d events are too large, and %d are dead letters", len(ids), len(dead))
	}
	return ids
}

// One of a hundred is too large: the others are delivered, in order. When the broker's limit was
// raised one command replays the dead letters; they say that they are replayed.
func tooLargeAmongSmall(t *testing.T, rmq *rabbitserver.Rabbit) {
	s := stand.New(t, stand.OnRabbitMQ(rmq))
	s.Kinds = []load.Kind{{Share: 0.02, Payload: tooLarge}}
	r := s.StartWatched()
	stop := s.Load(300)
	s.AwaitRows(checker.Open, 10)
	s.More(200)
	stop()
	ids := tooLargeAreDead(s)
	v := s.CheckHistory(checker.History{MaxDuplicates: s.RepeatsOver(len(ids), s.Keys), MaxDead: len(ids)})
	if len(v.Dead) != len(ids) {
		s.T.Errorf("%d dead letters by the checker, want %d", len(v.Dead), len(ids))
	}
	if n := s.Metric(r, `outbox_rejections_total{class="permanent",reason="too_large"}`); int(n) < len(ids) {
		s.T.Errorf("%g rejections are counted, want %d", n, len(ids))
	}
	counted(s, r, "outbox_dead_letters", len(ids))

	s.Must(rmq.SetMaxMessageSize(s.Context(), 10*tooLarge))
	s.Broker.Reset() // for channels opened afterwards
	operated(s, "dead-letters", "replay", "--all", "--class", "permanent", "--reason", "the limit was raised")
	s.AwaitRows(checker.Replayed, len(ids))
	// once more for each replay, and for the reset
	v = s.CheckHistory(checker.History{MaxDuplicates: s.RepeatsOver(2*len(ids)+1, s.Keys)})
	if len(v.Replayed) != len(ids) {
		s.T.Errorf("%d dead letters are replayed, want %d", len(v.Replayed), len(ids))
	}
	stopped(s, r, 0)
}
