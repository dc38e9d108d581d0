//go:build testall

package fault

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// All events of one key of a thousand are poison, under load: the other keys do not notice, nor
// does the slot, and nothing is deferred in the end.
func TestOnePoisonKeyAmongAThousand(t *testing.T) {
	const limit, tooLarge = "10000", 20_000
	stand.Parallel(t)
	s := stand.New(t, stand.SharedKafkaWith(t, stand.Topics{Configs: map[string]string{"max.message.bytes": limit}}))
	s.Keys = 1000
	s.Kinds = []load.Kind{{Share: 1, Keys: 1, Payload: tooLarge}}
	r := s.StartWatched()
	stop := s.Load(500)
	s.More(1500)
	stop()
	var ids []string
	s.Query([]any{&ids}, `SELECT array_agg(id::text ORDER BY id) FROM outbox WHERE length(payload::text) >= $1`, tooLarge)
	s.AwaitRows(checker.Open, len(ids))
	if dead := slices.Sorted(slices.Values(s.RetryRowIDs(checker.Open))); len(ids) == 0 || !slices.Equal(dead, ids) {
		t.Fatalf("%d events are too large, and %d are dead letters", len(ids), len(dead))
	}
	for _, id := range ids {
		s.Must(r.WaitLog(s.Context(), id)) // it is told when the dead letter is there
	}
	s.CheckHistory(checker.History{MaxDuplicates: s.Repeats(s.Keys / 10), MaxDead: len(ids)})
	s.Reported()
	stopped(s, r, 0)
}
