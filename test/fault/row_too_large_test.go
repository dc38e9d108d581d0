package fault

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A row over source.max_event_bytes is a dead letter without its large values. It has its place in
// the order of its key, which it holds here (on_dead_letter: block), also when it waits behind a
// destination that is missing. A replay reads the row, and it arrives as it is in the table.
func TestRowTooLarge(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		large := load.Kind{Payload: 300_000}
		s.Source, s.DeadLetters = "max_event_bytes: 64KiB, message_prefix: ours", "on_dead_letter: block"
		r := s.StartWatched()
		first, dead, behind := event(s, "a", 1, load.Kind{}), event(s, "a", 2, large), event(s, "a", 3, load.Kind{})
		laterLarge := large
		laterLarge.Destination = s.Later()
		later := []string{event(s, "a", 4, s.ToLater(0, 0)), event(s, "a", 5, laterLarge), event(s, "a", 6, s.ToLater(0, 0))}
		gone, other := event(s, "b", 1, large), event(s, "c", 1, load.Kind{})
		s.SQL(`SELECT pg_logical_emit_message(true, 'ours', jsonb_build_object('id', 'emitted', 'aggregatetype', 'order', 'aggregateid', 'm', 'type', 'placed', 'payload', repeat('x', 70000))::text)`)
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{first, other}))
		s.AwaitRows(checker.Open, 3)
		s.AwaitRows(checker.Deferred, 4)
		deadOf(s, r, "row_too_large", dead, gone, "")
		var table, key, size string
		s.Query([]any{&table, &key, &size}, `SELECT left_out, convert_from(key, 'UTF8'), (bytes > 300000 AND payload IS NULL AND fault IS NOT NULL)::text FROM cdc_relay.dead_letter WHERE n::text = $1`, number(s, dead))
		if table != "public.outbox" || key != "a" || size != "true" {
			t.Errorf("the dead letter is of key %q of table %q, with its size, without its payload, and with what an earlier version refuses it by: %s", key, table, size)
		}
		if n := s.Metric(r, `cdc_relay_rejections_total{class="permanent",reason="row_too_large"}`); n != 3 {
			t.Errorf("%g rejections are counted, want 3", n)
		}
		said := operated(s, "dead-letters", "show", number(s, dead)).Stdout
		for _, words := range []string{"left out", "a replay reads it from public.outbox", "row_too_large (permanent): the row of public.outbox has more bytes than", "0 attempts"} {
			if !strings.Contains(said, words) {
				t.Errorf("the command does not say %q: %s", words, said)
			}
		}

		// What waits for a destination dies in its turn.
		s.MakeLater()
		s.Must(s.Consumer.WaitIDs(s.Context(), later[:1]))
		s.AwaitRows(checker.Open, 4)
		s.AwaitRows(checker.Deferred, 2)

		s.SQL(`DELETE FROM outbox WHERE id::text = $1`, gone)
		var emitted string
		s.Query([]any{&emitted}, `SELECT n::text FROM cdc_relay.dead_letter WHERE id IS NULL AND left_out = ''`)
		for n, words := range map[string]string{number(s, gone): "no longer in public.outbox", emitted: "in no table"} {
			if result := s.Command("dead-letters", "replay", n, "--wait", "10m"); result.Code != 1 || !strings.Contains(result.Stdout+result.Stderr, words) {
				t.Errorf("the replay ends with %d, and does not say %q: %s%s", result.Code, words, result.Stdout, result.Stderr)
			}
			operated(s, "dead-letters", "discard", n, "--wait", "10m")
		}
		for _, id := range []string{dead, later[1]} {
			operated(s, "dead-letters", "replay", number(s, id), "--wait", "10m")
		}
		s.Must(s.Consumer.WaitIDs(s.Context(), append(later, dead, behind)))
		// what is in no table now
		s.Messages = []checker.Row{{ID: gone, Aggregate: "order", Key: "b", Seq: 1}, {}}
		// the missing exchange is refused once, beside events of a, c and m
		v := s.CheckHistory(checker.History{Block: true, MaxDead: 1, MaxDuplicates: s.RepeatsOver(1, 3)})
		if slices.Sort(v.Replayed); !slices.Equal(v.Replayed, slices.Sorted(slices.Values([]string{dead, later[1]}))) {
			t.Errorf("replayed are %v", v.Replayed)
		}
		stopped(s, r, 0)
	})
}
