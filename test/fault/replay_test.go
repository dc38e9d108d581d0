package fault

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/sentinel"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// What operators do to dead letters, on the real servers.

// operated runs a command that must succeed.
func operated(s *stand.Stand, args ...string) runner.Result {
	s.T.Helper()
	result := s.Command(args...)
	if result.Code != 0 {
		s.T.Fatalf("cdc-relay %s ends with %d: %s%s", strings.Join(args, " "), result.Code, result.Stdout, result.Stderr)
	}
	return result
}

// number is by what an operator names a dead letter.
func number(s *stand.Stand, id string) string {
	s.T.Helper()
	var n int64
	s.Query([]any{&n}, `SELECT n FROM cdc_relay.dead_letter WHERE slot = $1 AND convert_from(id, 'UTF8') = $2`, s.Slot, id)
	return fmt.Sprint(n)
}

// row is one row on a stand that routes.
type row struct {
	load.Kind
	key         string
	seq         int
	cc          string // its header CC
	traceparent string
}

// insert inserts a row, and returns its id.
func insert(s *stand.Stand, r row) (id string) {
	s.T.Helper()
	s.Query([]any{&id}, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers, traceparent, destination, routing_key)
		VALUES (gen_random_uuid(), 'order', $1, 'placed', jsonb_build_object('key', $1::text, 'seq', $2::int, 'fill', repeat('x', $3), 'who', $4::text),
			jsonb_strip_nulls(jsonb_build_object('who', $5::text, 'CC', nullif($6::text, ''))), nullif($7, ''),
			coalesce(nullif($8, ''), $9), coalesce(nullif($10, ''), 'order.placed')) RETURNING id::text`,
		r.key, r.seq, r.Payload, sentinel.SentinelPayload, sentinel.SentinelHeader, r.cc, r.traceparent, r.Destination, s.Usual(), r.RoutingKey)
	return id
}

// event inserts a row of a kind, and returns its id.
func event(s *stand.Stand, key string, seq int, kind load.Kind) (id string) {
	s.T.Helper()
	return insert(s, row{Kind: kind, key: key, seq: seq})
}

// A dead letter that holds its key (on_dead_letter: block) is replayed: it arrives first, then what
// was deferred behind it, in order.
func TestReplayOfAKeyWithDeferredEventsBehind(t *testing.T) {
	stand.KindKafka.OnRouted(t, func(s *stand.Stand) {
		s.DeadLetters = "on_dead_letter: block"
		r := s.StartWatched()
		dead := event(s, "a", 1, s.Poison(1, 0))
		s.AwaitRows(checker.Open, 1)
		behind := []string{event(s, "a", 2, load.Kind{}), event(s, "a", 3, load.Kind{})}
		s.AwaitRows(checker.Deferred, 2)
		other := event(s, "b", 1, load.Kind{})
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{other}))
		operated(s, append([]string{"dead-letters", "replay", number(s, dead), "--wait", "10m"}, s.Antidote()...)...)
		s.Must(s.Consumer.WaitIDs(s.Context(), append(behind, dead)))
		v := s.CheckHistory(checker.History{Block: true})
		if len(v.Replayed) != 1 || v.Replayed[0] != dead {
			s.T.Errorf("replayed are %v, want %s", v.Replayed, dead)
		}
		stopped(s, r, 0)
	})
}

// deadOf checks that these are the dead letters, whatever their order, that each died of the
// reason, in the broker's words, and that the log names it.
func deadOf(s *stand.Stand, r *runner.Relay, reason string, ids ...string) {
	s.T.Helper()
	dead := s.RetryRowIDs(checker.Open)
	slices.Sort(dead)
	slices.Sort(ids)
	if !slices.Equal(dead, ids) {
		s.T.Errorf("dead letters are %q, want %q", dead, ids)
	}
	for _, id := range ids {
		var class, died, words string
		s.Query([]any{&class, &died, &words}, `SELECT class, reason, error
			FROM cdc_relay.dead_letter d WHERE slot = $1 AND coalesce(convert_from(d.id, 'UTF8'), '') = $2`, s.Slot, id)
		if class != "permanent" || died != reason || words == "" {
			s.T.Errorf("event %q died of %s, %s: %q; want %s", id, class, died, words, reason)
		}
		s.Must(r.WaitLog(s.Context(), id)) // it is told when the dead letter is there
	}
}
