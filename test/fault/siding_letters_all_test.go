//go:build testall

package fault

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A bulk discard that spares the server, at a rate, is under way when one more parked event becomes
// a dead letter. The operator has not seen that one among the letters: it stays open.
func TestDiscardLeavesWhatDiesMeanwhile(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		s.WatchFlush()
		s.Start()
		for i := range 4 {
			event(s, fmt.Sprint("dead-", i), 1, s.Poison(1, 0))
		}
		s.AwaitSided(devenv.Open, 4)
		later := event(s, "later", 1, s.ToLater(1, 0))
		s.AwaitSided(devenv.Parked, 1)
		operated(s, "dead-letters", "discard", "--all", "--rate", "1/s", "--wait", "0s")
		var n int64
		s.Query([]any{&n}, `SELECT n FROM cdc_relay.retry WHERE slot = $1`, s.Slot)
		operated(s, "deferred", "dead-letter", fmt.Sprint(n), "--wait", "30s")
		s.Until("the job to end", func() (ended bool) {
			s.Query([]any{&ended}, `SELECT closed_at IS NOT NULL FROM cdc_relay.bulk WHERE slot = $1`, s.Slot)
			return ended
		})
		if open := s.SidedIDs(devenv.Open); len(open) != 1 || open[0] != later {
			s.T.Errorf("open are %v, want %s", open, later)
		}
	})
}

// What follows a letter that is discarded goes on (on_dead_letter: block), and the letter never arrives.
func TestDiscardReleasesWhatIsHeld(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		s.Letters = "on_dead_letter: block"
		s.WatchFlush()
		s.Start()
		dead := event(s, "a", 1, s.Poison(1, 0))
		s.AwaitSided(devenv.Open, 1)
		follower := event(s, "a", 2, devenv.Kind{})
		s.AwaitSided(devenv.Parked, 1)
		operated(s, "dead-letters", "discard", number(s, dead), "--wait", "30s")
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{follower}))
		if v := s.CheckHistory(devenv.History{Hold: true}); len(v.Discarded) != 1 {
			s.T.Errorf("discarded are %v, want %s", v.Discarded, dead)
		}
	})
}

// Two operators at the same letter: one of them is obeyed, and the other is told.
func TestTwoOperatorsOnOneLetter(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		s.WatchFlush()
		r := s.Start()
		const letters = 6
		var ids []string
		for i := range letters {
			ids = append(ids, event(s, fmt.Sprint("k", i), 1, s.Poison(1, 0)))
		}
		s.AwaitSided(devenv.Open, letters)
		antidote := s.Antidote()
		for _, id := range ids {
			var both sync.WaitGroup
			var results [2]devenv.Result
			for i, args := range [][]string{
				append([]string{"dead-letters", "replay", number(s, id), "--wait", "30s"}, antidote...),
				{"dead-letters", "discard", number(s, id), "--wait", "30s"},
			} {
				both.Go(func() { results[i] = s.Command(args...) })
			}
			both.Wait()
			if results[0].Code == 0 && results[1].Code == 0 {
				s.T.Errorf("both operators were obeyed: %s and %s", results[0].Stdout, results[1].Stdout)
			}
			if results[0].Code != 0 && results[1].Code != 0 {
				s.T.Errorf("neither operator was obeyed: %s and %s", results[0].Stderr, results[1].Stderr)
			}
		}
		v := s.CheckHistory(devenv.History{})
		if len(v.Replayed)+len(v.Discarded) != letters {
			s.T.Errorf("%d letters are replayed and %d discarded, of %d", len(v.Replayed), len(v.Discarded), letters)
		}
		var audited int
		s.Query([]any{&audited}, `SELECT count(*) FROM cdc_relay.audit WHERE (action, result) IN (('replay', 'replayed'), ('discard', 'discarded'))`)
		if audited != letters {
			s.T.Errorf("the audit tells of %d, want %d", audited, letters)
		}
		stopped(s, r, 0)
	})
}

// Requests that are made while no relay runs wait in the database, the command says so, and the next relay carries them out.
func TestReplayWhileNoRelayRuns(t *testing.T) {
	stand.KindKafka.OnRouted(t, func(s *stand.Stand) {
		s.WatchFlush()
		r := s.Start()
		dead := event(s, "a", 1, s.Poison(1, 0))
		s.AwaitSided(devenv.Open, 1)
		after := event(s, "a", 2, devenv.Kind{})
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{after}))
		stopped(s, r, 0)
		said := operated(s, append([]string{"dead-letters", "replay", number(s, dead), "--wait", "1s"}, s.Antidote()...)...)
		if !strings.Contains(said.Stdout+said.Stderr, "no relay") {
			s.T.Errorf("it says %s%s", said.Stdout, said.Stderr)
		}
		if n := s.Sided(devenv.Open); n != 1 {
			s.T.Fatalf("%d letters are open, want 1", n)
		}
		s.Start()
		s.AwaitSided(devenv.Replayed, 1)
		s.CheckHistory(devenv.History{})
	})
}

// A replay that the broker refuses leaves the letter open, says so with the broker's words, and can be repeated.
func TestReplayThatIsRefused(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		s.WatchFlush()
		s.Start()
		dead := event(s, "a", 1, s.Poison(1, 0))
		s.AwaitSided(devenv.Open, 1)
		result := s.Command("dead-letters", "replay", number(s, dead), "--wait", "30s")
		if result.Code == 0 || s.Sided(devenv.Open) != 1 {
			s.T.Errorf("a replay that is refused ends with %d and leaves %d letters open: %s%s", result.Code, s.Sided(devenv.Open), result.Stdout, result.Stderr)
		}
		operated(s, append([]string{"dead-letters", "replay", number(s, dead), "--wait", "30s"}, s.Antidote()...)...)
		s.CheckHistory(devenv.History{})
	})
}

// An operator gives up what is parked: it is dead, what follows it goes on, and it can be replayed.
func TestParkedIsGivenUp(t *testing.T) {
	stand.KindKafka.OnRouted(t, func(s *stand.Stand) {
		s.WatchFlush()
		r := s.Start()
		const events = 20
		for i := range events {
			event(s, fmt.Sprint("k", i%5), i/5+1, s.ToLater(1, 0))
		}
		s.AwaitSided(devenv.Parked, events)
		operated(s, "deferred", "dead-letter", "--all", "--reason", "the destination is gone for good")
		s.AwaitSided(devenv.Open, events)
		s.CheckHistory(devenv.History{MaxDead: events})
		s.MakeLater()
		operated(s, "dead-letters", "replay", "--all")
		s.AwaitSided(devenv.Replayed, events)
		if v := s.CheckHistory(devenv.History{}); v.Delivered != events || len(v.Replayed) != events {
			s.T.Errorf("%d events were delivered, %d letters replayed, want %d", v.Delivered, len(v.Replayed), events)
		}
		stopped(s, r, 0)
	})
}
