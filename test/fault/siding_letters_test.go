package fault

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// What operators do to dead letters, on the real servers.

// operated runs a command that must succeed.
func operated(s *stand.Stand, args ...string) devenv.Result {
	s.T.Helper()
	result := s.Command(args...)
	if result.Code != 0 {
		s.T.Fatalf("cdc-relay %s ends with %d: %s%s", strings.Join(args, " "), result.Code, result.Stdout, result.Stderr)
	}
	return result
}

// number is by what an operator names a letter.
func number(s *stand.Stand, id string) string {
	s.T.Helper()
	var n int64
	s.Query([]any{&n}, `SELECT n FROM cdc_relay.dead_letter WHERE slot = $1 AND convert_from(id, 'UTF8') = $2`, s.Slot, id)
	return fmt.Sprint(n)
}

// event inserts one row on a stand that routes, and returns its id.
func event(s *stand.Stand, key string, seq int, kind devenv.Kind) (id string) {
	s.T.Helper()
	s.Query([]any{&id}, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers, destination, routing_key)
		VALUES (gen_random_uuid(), 'order', $1, 'placed', jsonb_build_object('key', $1::text, 'seq', $2::int, 'fill', repeat('x', $3), 'who', $7::text),
			jsonb_build_object('who', $8::text), coalesce(nullif($4, ''), $6), coalesce(nullif($5, ''), 'order.placed')) RETURNING id::text`,
		key, seq, kind.Payload, kind.Destination, kind.RoutingKey, s.Usual(),
		devenv.SentinelPayload, devenv.SentinelHeader)
	return id
}

// A letter that holds its key (followers: hold) is replayed: it arrives first, then what was parked behind it, in order.
func TestReplayOfAKeyWithParkedFollowers(t *testing.T) {
	stand.OnEachRouted(t, func(s *stand.Stand) {
		s.Letters = "followers: hold"
		s.WatchFlush()
		r := s.Start()
		dead := event(s, "a", 1, s.Poison(1, 0))
		s.AwaitSided(devenv.Open, 1)
		followers := []string{event(s, "a", 2, devenv.Kind{}), event(s, "a", 3, devenv.Kind{})}
		s.AwaitSided(devenv.Parked, 2)
		other := event(s, "b", 1, devenv.Kind{})
		s.Must(s.Consumer.WaitIDs(s.Within(time.Minute), []string{other}))
		operated(s, append([]string{"deadletters", "replay", number(s, dead), "--wait", "30s"}, s.Antidote()...)...)
		s.Must(s.Consumer.WaitIDs(s.Within(time.Minute), append(followers, dead)))
		v := s.CheckHistory(devenv.History{Hold: true})
		if len(v.Replayed) != 1 || v.Replayed[0] != dead {
			s.T.Errorf("replayed are %v, want %s", v.Replayed, dead)
		}
		stopped(s, r, 0)
	})
}

// What follows a letter that is discarded goes on (followers: hold), and the letter never arrives.
func TestDiscardReleasesWhatIsHeld(t *testing.T) {
	stand.OnEachRouted(t, func(s *stand.Stand) {
		s.Letters = "followers: hold"
		s.WatchFlush()
		s.Start()
		dead := event(s, "a", 1, s.Poison(1, 0))
		s.AwaitSided(devenv.Open, 1)
		follower := event(s, "a", 2, devenv.Kind{})
		s.AwaitSided(devenv.Parked, 1)
		operated(s, "deadletters", "discard", number(s, dead), "--wait", "30s")
		s.Must(s.Consumer.WaitIDs(s.Within(time.Minute), []string{follower}))
		if v := s.CheckHistory(devenv.History{Hold: true}); len(v.Discarded) != 1 {
			s.T.Errorf("discarded are %v, want %s", v.Discarded, dead)
		}
	})
}

// Two operators at the same letter: one of them is obeyed, and the other is told.
func TestTwoOperatorsOnOneLetter(t *testing.T) {
	stand.OnEachRouted(t, func(s *stand.Stand) {
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
				append([]string{"deadletters", "replay", number(s, id), "--wait", "30s"}, antidote...),
				{"deadletters", "discard", number(s, id), "--wait", "30s"},
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
	stand.OnEachRouted(t, func(s *stand.Stand) {
		s.WatchFlush()
		r := s.Start()
		dead := event(s, "a", 1, s.Poison(1, 0))
		s.AwaitSided(devenv.Open, 1)
		after := event(s, "a", 2, devenv.Kind{})
		s.Must(s.Consumer.WaitIDs(s.Within(time.Minute), []string{after}))
		stopped(s, r, 0)
		said := operated(s, append([]string{"deadletters", "replay", number(s, dead), "--wait", "1s"}, s.Antidote()...)...)
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
	stand.OnEachRouted(t, func(s *stand.Stand) {
		s.WatchFlush()
		s.Start()
		dead := event(s, "a", 1, s.Poison(1, 0))
		s.AwaitSided(devenv.Open, 1)
		result := s.Command("deadletters", "replay", number(s, dead), "--wait", "30s")
		if result.Code == 0 || s.Sided(devenv.Open) != 1 {
			s.T.Errorf("a replay that is refused ends with %d and leaves %d letters open: %s%s", result.Code, s.Sided(devenv.Open), result.Stdout, result.Stderr)
		}
		operated(s, append([]string{"deadletters", "replay", number(s, dead), "--wait", "30s"}, s.Antidote()...)...)
		s.CheckHistory(devenv.History{})
	})
}

// An operator gives up what is parked: it is dead, what follows it goes on, and it can be replayed.
func TestParkedIsGivenUp(t *testing.T) {
	stand.OnEachRouted(t, func(s *stand.Stand) {
		s.WatchFlush()
		r := s.Start()
		const events = 20
		for i := range events {
			event(s, fmt.Sprint("k", i%5), i/5+1, s.ToLater(1, 0))
		}
		s.AwaitSided(devenv.Parked, events)
		operated(s, "parked", "deadletter", "--all", "--reason", "the destination is gone for good")
		s.AwaitSided(devenv.Open, events)
		s.Until(time.Minute, "no destination to be paused of which nothing is parked", func() bool {
			return metric(s, r, "outbox_destinations_paused") == 0
		})
		s.CheckHistory(devenv.History{MaxDead: events})
		s.MakeLater()
		operated(s, "deadletters", "replay", "--all")
		s.AwaitSided(devenv.Replayed, events)
		if v := s.CheckHistory(devenv.History{}); v.Delivered != events || len(v.Replayed) != events {
			s.T.Errorf("%d events were delivered, %d letters replayed, want %d", v.Delivered, len(v.Replayed), events)
		}
		stopped(s, r, 0)
	})
}

// A letter that was discarded and purged stays away when PostgreSQL crashes and sends its transaction again: its position is
// still known.
func TestPurgedLetterStaysAwayAfterACrashOfPostgreSQL(t *testing.T) {
	stand.Parallel(t)
	pg, err := devenv.StartPostgres(t.Context(), devenv.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	s := stand.On(t, pg, stand.SharedRabbitMQ(t))
	s.Route()
	s.WatchFlush()
	r := s.Start()
	s.SQL(`CHECKPOINT`)
	dead := event(s, "a", 1, s.Poison(1, 0))
	s.AwaitSided(devenv.Open, 1)
	n := number(s, dead)
	operated(s, "deadletters", "discard", n)
	operated(s, "deadletters", "purge", n)
	after := event(s, "a", 2, devenv.Kind{})
	s.Must(s.Consumer.WaitIDs(s.Within(time.Minute), []string{after}))
	s.Reported()
	before := s.SidingRows()
	_, err = pg.Stop("immediate")
	s.Must(err)
	s.Must(pg.Start(s.Within(time.Minute)))
	s.Leads(s.Ready(r))
	s.Must(s.Consumer.WaitIDs(s.Within(time.Minute), []string{event(s, "a", 3, devenv.Kind{})}))
	s.Reported()
	if v := s.CheckHistory(devenv.History{}); len(v.Discarded) != 1 {
		t.Errorf("discarded are %v, want the letter", v.Discarded)
	}
	if after := s.SidingRows(); !slices.Equal(before, after) {
		t.Errorf("the rows of the siding have changed:\n%.2000q\n%.2000q", before, after)
	}
	stopped(s, r, 0)
}
