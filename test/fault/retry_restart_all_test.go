//go:build testall

package fault

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

const otherRow = "11111111-1111-1111-1111-111111111111"

// Between the crash and the next start the configuration changes: another table of the publication
// before ours, logical messages as events, another ordering. What is deferred or dead is known by
// its position all the same: it is not sent again.
func TestConfigurationChangesBetweenCrashAndRedelivery(t *testing.T) {
	stand.KindKafka.OnRouted(t, func(s *stand.Stand) {
		s.WatchFlush()
		s.SQL(`CREATE TABLE other_outbox (LIKE outbox INCLUDING ALL)`)
		// Both tables are published from the beginning: the server sends the rows of the
		// other one, whoever's they are.
		s.SQL(fmt.Sprintf(`CREATE PUBLICATION %s FOR TABLE outbox, other_outbox WITH (publish = 'insert', publish_via_partition_root = true)`, s.Slot))
		r := s.Start()
		s.Deliver(30)
		s.Reported()
		let := unreported(s)
		// One transaction with all of it: the indexes of its events are counted over
		// everything in it.
		s.SQL(fmt.Sprintf(`SELECT pg_logical_emit_message(true, 'ours', '{"id": "of a message", "aggregatetype": "order", "aggregateid": "m", "type": "placed", "payload": {"seq": 1}, "destination": "%[3]s", "routing_key": "order.placed"}');
			INSERT INTO other_outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('%[4]s', 'order', 'o', 'placed', '{"seq": 1}');
			INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, destination, routing_key)
			SELECT gen_random_uuid(), 'order', 'c' || i %% 5, 'placed', jsonb_build_object('key', 'c' || i %% 5, 'seq', i / 5 + 1, 'fill', repeat('x', CASE WHEN i %% 5 > 1 AND i %% 7 = 0 THEN %[1]d ELSE 0 END)),
				CASE WHEN i %% 5 < 2 THEN '%[2]s' ELSE '%[3]s' END, 'order.placed'
			FROM generate_series(0, 99) i`, s.Poison(1, 0).Payload, s.Later(), s.Usual(), otherRow))
		s.AwaitRows(checker.Open, 1)
		s.AwaitRows(checker.Deferred, 30)
		s.Until("all of it to be somewhere", func() bool {
			n, _ := s.Consumer.Count()
			return n-s.Committed()+s.RowsIn(checker.Open)+s.RowsIn(checker.Deferred) >= 100
		})
		s.Must(r.Kill())
		let()
		s.Gone()
		dead := s.RetryRowIDs(checker.Open)
		bound := s.Unreported()
		s.Ordering, s.Source = "pipelined", "tables: [public.other_outbox, public.outbox], message_prefix: ours"
		s.Messages = []checker.Row{
			{ID: otherRow, Aggregate: "order", Key: "o", Seq: 1, ExchangeOrTopic: s.Usual()},
			{ID: "of a message", Aggregate: "order", Key: "m", Seq: 1, ExchangeOrTopic: s.Usual()},
		}
		r = s.Start()
		s.Write(30)
		s.MakeLater()
		v := s.CheckHistory(checker.History{MaxDuplicates: bound, MaxDead: len(dead)})
		slices.Sort(dead)
		slices.Sort(v.Dead)
		if !slices.Equal(dead, v.Dead) {
			s.T.Errorf("%d dead letters were open, and now %d", len(dead), len(v.Dead))
		}
		stopped(s, r, 0)
	})
}

// After a restore into a new cluster the rows are of the system before, and nobody else will ever
// send them. Who took this server for a copy first has them sent by what `check` says, while a
// relay leads. They come in their order, before what is new of their keys, and what is dead can be
// replayed. (TestOtherServer accepts the server as the same data at once.)
func TestRowsOfTheSystemBefore(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		r := s.StartWatched()
		for seq := 1; seq <= 3; seq++ {
			event(s, "a", seq, s.ToLater(1, 0))
		}
		dead := event(s, "b", 1, s.Poison(1, 0))
		s.AwaitRows(checker.Deferred, 3)
		s.AwaitRows(checker.Open, 1)
		stopped(s, r, 0)
		for _, table := range []string{"slots", "retry", "dead_letter"} {
			s.SQL(`UPDATE cdc_relay.` + table + ` SET system_id = '4711'`)
		}
		r = s.Launch()
		s.Exits(r, 3, "4711")
		s.Accept(r.Log(), "--copy")
		r = s.Start()
		s.Accept(s.Command("check").Stdout, "--same-data")
		s.Exits(r, 1, "fenced")
		r = s.Start()
		event(s, "a", 4, s.ToLater(1, 0)) // behind the others
		s.AwaitRows(checker.Deferred, 4)
		s.MakeLater()
		s.AwaitEmpty()
		operated(s, append([]string{"dead-letters", "replay", number(s, dead), "--wait", "10m"}, s.Antidote()...)...)
		s.Check(0)
		stopped(s, r, 0)
	})
}

// SIGSTOP while the relay defers, dead-letters, replays and feeds, and a standby that takes over:
// the former leader changes nothing when it goes on. Every combination is in test/long.
func TestStoppedInTheRetryTable(t *testing.T) {
	t.Parallel()
	stand.FreezeAll(t, false)
}
