//go:build testall

package fault

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A relay that deletes delivered rows is killed while it does. What is gone from the table has
// arrived then, although nobody is there who could still send it; and what is deferred stays in the
// table until it has arrived, too. In the end the table is empty.
func TestDeletedRowsAreDelivered(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		s.Retry = "backoff: 100ms, max_backoff: 1s"
		deletesAll(s)
		s.Kinds = []load.Kind{s.ToLater(0.1, 0)}
		s.WatchFlush()
		r := s.Launch()
		s.Leads(r)
		s.RefuseLater()
		stop := s.Load(300)
		gone := 0
		for range 2 {
			s.Until("more rows to be deleted", func() bool { return len(deleted(s)) > gone })
			s.Must(r.Kill())
			s.Gone()
			ids := deleted(s)
			gone = len(ids)
			s.Must(s.Consumer.WaitIDs(s.Context(), ids))
			r = s.Launch()
			s.Leads(r)
		}
		stop()
		s.MakeLater()
		s.Until("the table to be empty", func() (empty bool) {
			s.Query([]any{&empty}, `SELECT NOT EXISTS (SELECT FROM outbox)`)
			return empty
		})
		s.CheckHistory(checker.History{MaxDuplicates: -1, Committed: written(s)})
	})
}

// deletesAll has relays delete what is delivered. What was written stays in another table.
func deletesAll(s *stand.Stand) {
	s.T.Helper()
	s.Retention = "mode: delete, keep: 0"
	s.SQL(`CREATE TABLE written (LIKE outbox);
		CREATE FUNCTION also() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO written SELECT NEW.*; RETURN NULL; END $$;
		CREATE TRIGGER also AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION also()`)
}

// A relay is frozen in a transaction that holds a lock on the outbox table. A migration changes the
// table: it waits for that lock, and all INSERTs wait for it. Both go on although nobody takes
// over. Then another relay does, and ends what the former leader has left. When that one goes on,
// it deletes no row that was not sent.
func TestFrozenWithALockOnTheOutbox(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		deletesAll(s)
		s.WatchFlush()
		r := s.Launch()
		s.Leads(r)
		freezeInRetention(s, r)
		flush := s.Flush()
		s.SQL(`ALTER TABLE written ADD COLUMN more int`)
		s.SQL(`ALTER TABLE outbox ADD COLUMN more int`)
		s.Write(10)
		next := s.Launch()
		s.Leads(next)
		s.Must(next.WaitLog(s.Context(), `"ended sessions of former leaders"`))
		s.Must(r.Thaw())
		s.Deposed(r)
		s.Arrived()
		s.CheckHistory(checker.History{MaxDuplicates: s.Since(flush), Committed: written(s)})
	})
}

// freezeInRetention freezes a relay while its session waits for it in a transaction, with a lock on
// the table. Its statements take their time, and what was under way has arrived: had it
// ended the transaction, another one is tried.
func freezeInRetention(s *stand.Stand, r *runner.Relay) {
	s.T.Helper()
	locks := func(since string) (held bool) {
		s.Query([]any{&held}, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.relation = 'outbox'::regclass
			AND a.application_name LIKE 'cdc-relay/%' AND a.state = 'idle in transaction' AND a.state_change < now() - $1::interval)`, since)
		return held
	}
	s.Postgres.Delay(150 * time.Millisecond)
	defer s.Postgres.Delay(0)
	s.Until("the relay to be frozen with a lock", func() bool {
		s.Write(1)
		s.Until("a lock on the table", func() bool { return locks("0") })
		s.Must(r.Freeze())
		s.Postgres.Delay(0)
		var quiet bool
		s.Until("what was under way to arrive", func() bool {
			s.Query([]any{&quiet}, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'cdc-relay/%'
				AND backend_type = 'client backend' AND state_change > now() - interval '1 s')`)
			return quiet
		})
		if locks("1 s") {
			return true
		}
		s.Must(r.Thaw())
		s.Postgres.Delay(150 * time.Millisecond)
		return false
	})
}

// deleted are the ids of rows that are no longer in the table.
func deleted(s *stand.Stand) (ids []string) {
	s.T.Helper()
	s.Query([]any{&ids}, `SELECT array(SELECT id::text FROM written EXCEPT SELECT id::text FROM outbox)`)
	return ids
}

// written are all rows that were committed.
func written(s *stand.Stand) (rows []checker.Row) {
	s.T.Helper()
	var ids, aggregates, keys, destinations []string
	var numbers []int64
	s.Query([]any{&ids, &aggregates, &keys, &numbers, &destinations}, `SELECT array_agg(id::text), array_agg(aggregatetype), array_agg(aggregateid),
		array_agg((payload->>'seq')::bigint), array_agg(destination) FROM written`)
	for i := range ids {
		rows = append(rows, checker.Row{ID: ids[i], Aggregate: aggregates[i], Key: keys[i], Seq: numbers[i], ExchangeOrTopic: destinations[i]})
	}
	return rows
}
