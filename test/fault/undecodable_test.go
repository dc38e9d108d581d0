package fault

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// What cannot be read as an event, a row without an id and a logical message that lacks a member,
// is a dead letter at once with all that it was. The relay lives, what comes after it goes on, of
// its key too, and so does the slot.
func TestUndecodable(t *testing.T) {
	stand.KindKafka.On(t, func(s *stand.Stand) {
		const bad, lacks = "lacks a type", `{"id": "lacks a type", "aggregatetype": "order", "aggregateid": "m",   "payload": {"seq": 1}}`
		s.Source = "message_prefix: ours"
		s.SQL(`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey, ALTER id DROP NOT NULL`)
		r := s.StartWatched()
		s.SQL(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (NULL, 'order', 'a', 'placed', '{"seq": 1}'),
				(gen_random_uuid(), 'order', 'a', 'placed', '{"seq": 2}');
			SELECT pg_logical_emit_message(true, 'ours', '%s');
			SELECT pg_logical_emit_message(true, 'ours', '{"id": "whole", "aggregatetype": "order", "aggregateid": "m", "type": "placed", "payload": {"seq": 2}}')`, lacks))
		s.Messages = []checker.Row{{ID: bad, Aggregate: "order", Key: "m", Seq: 1}, {ID: "whole", Aggregate: "order", Key: "m", Seq: 2}}
		s.AwaitRows(checker.Open, 2)
		v := s.CheckHistory(checker.History{MaxDead: 2})
		if slices.Sort(v.Dead); !slices.Equal(v.Dead, []string{"", bad}) {
			s.T.Errorf("dead are %q, want the row without an id and %q", v.Dead, bad)
		}
		deadOf(s, r, "undecodable", "", bad)
		var row string
		var message []byte
		var commit pglogrepl.LSN
		s.Query([]any{&row}, `SELECT format('%s %s %s', convert_from(raw, 'UTF8')::jsonb->>'id', convert_from(raw, 'UTF8')::jsonb->>'aggregateid', convert_from(raw, 'UTF8')::jsonb->>'payload')
			FROM cdc_relay.dead_letter WHERE id IS NULL`)
		s.Query([]any{&message, &commit}, `SELECT raw, commit_lsn FROM cdc_relay.dead_letter WHERE id IS NOT NULL`)
		if row != ` a {"seq": 1}` || string(message) != lacks {
			s.T.Errorf("the dead letters have of the row %q, of the message %q", row, message)
		}
		s.Until("the slot to go on", func() bool { return s.Flush() > commit })
		if n := s.Metric(r, `cdc_relay_rejections_total{class="permanent",reason="undecodable"}`); n != 2 {
			s.T.Errorf("%g rejections are counted, want 2", n)
		}
		if result := s.Command("dead-letters", "replay", number(s, bad), "--wait", "10m"); result.Code != 1 || s.RowsIn(checker.Open) != 2 {
			s.T.Errorf("a replay of what is no event ends with %d, and %d dead letters are open", result.Code, s.RowsIn(checker.Open))
		}
		stopped(s, r, 0)
	})
}
