//go:build testall

package fault

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// What a relay does with deferred rows and dead letters when it is asked to, or when their time has
// come.

// What was closed longer ago than dead_letters.keep is purged without being asked for; what is open
// never is, and is told to be old.
func TestClosedDeadLettersArePurgedByAge(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		s.DeadLetters = "keep: 1h"
		r := s.StartWatched()
		var deadLetters []string
		for i := range 4 {
			deadLetters = append(deadLetters, event(s, fmt.Sprint("k", i), 1, s.Poison(1, 0)))
		}
		s.AwaitRows(checker.Open, len(deadLetters))
		replayed, discarded, fresh, open := deadLetters[0], deadLetters[1], deadLetters[2], deadLetters[3]
		operated(s, append([]string{"dead-letters", "replay", number(s, replayed), "--wait", "10m"}, s.Antidote()...)...)
		operated(s, "dead-letters", "discard", number(s, discarded), "--wait", "10m")
		operated(s, "dead-letters", "discard", number(s, fresh), "--wait", "10m")
		s.CheckHistory(checker.History{MaxDead: 1})
		stopped(s, r, 0)
		arrived, _ := s.Consumer.Count()
		s.SQL(`UPDATE cdc_relay.dead_letter SET died_at = now() - interval '3 hours'`)
		s.SQL(`UPDATE cdc_relay.dead_letter SET closed_at = now() - interval '2 hours' WHERE convert_from(id, 'UTF8') = ANY ($1)`, []string{replayed, discarded})
		r = s.Start()
		aged(s, r, "outbox_dead_letters_oldest_age_seconds", 3*time.Hour)
		s.Until("old dead letters to be emptied", func() (gone bool) {
			s.Query([]any{&gone}, `SELECT NOT EXISTS (SELECT FROM cdc_relay.dead_letter WHERE closed_at < now() - interval '1 hour'
				AND (state <> 'purged' OR num_nonnulls(id, key, aggregate, payload, headers, columns, route_name) > 0))`)
			return gone
		})
		var states string
		s.Query([]any{&states}, `SELECT string_agg(state, ' ' ORDER BY state) FROM cdc_relay.dead_letter WHERE convert_from(id, 'UTF8') = ANY ($1) AND payload IS NOT NULL`, []string{fresh, open})
		if states != "discarded open" {
			s.T.Errorf("of the other dead letters are left: %s", states)
		}
		counted(s, r, "outbox_dead_letters", 1)
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{event(s, "k0", 2, load.Kind{})}))
		s.Must(s.Consumer.Drain(s.Context()))
		if now, _ := s.Consumer.Count(); now != arrived+1 {
			s.T.Errorf("%d events have arrived since, want one", now-arrived)
		}
		stopped(s, r, 0)
	})
}
