//go:build testall

package fault

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// On Kafka, too, a row over source.max_event_bytes holds its key until a replay has read it.
func TestRowTooLargeOnKafka(t *testing.T) {
	stand.KindKafka.OnRouted(t, func(s *stand.Stand) {
		s.Source, s.DeadLetters = "max_event_bytes: 64KiB", "on_dead_letter: block"
		s.MakeLater() // the other topic takes no more than some kB
		r := s.StartWatched()
		small := s.ToLater(0, 0)
		large := small
		large.Payload = 300_000
		first, dead, behind := event(s, "a", 1, small), event(s, "a", 2, large), event(s, "a", 3, small)
		other := event(s, "b", 1, load.Kind{})
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{first, other}))
		s.AwaitRows(checker.Open, 1)
		s.AwaitRows(checker.Deferred, 1)
		deadOf(s, r, "row_too_large", dead)
		operated(s, "dead-letters", "replay", number(s, dead), "--wait", "10m")
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{dead, behind}))
		if v := s.CheckHistory(checker.History{Block: true, MaxDead: 1}); !slices.Equal(v.Replayed, []string{dead}) {
			t.Errorf("replayed are %v", v.Replayed)
		}
		stopped(s, r, 0)
	})
}
