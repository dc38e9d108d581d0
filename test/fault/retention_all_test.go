//go:build testall

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A relay that deletes delivered rows is killed while it does. What is gone from the table has
// arrived then, although nobody is there who could still send it; and what is deferred stays in the
// table until it has arrived, too. In the end the table is empty.
func TestDeletedRowsAreDelivered(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) { deleting(s, 2) })
}

// deleting kills a relay so many times.
func deleting(s *stand.Stand, kills int) {
	s.T.Helper()
	s.Retention, s.Retry = "mode: delete, keep: 0", "backoff: 100ms, max_backoff: 1s"
	s.SQL(`CREATE TABLE written (LIKE outbox);
		CREATE FUNCTION also() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO written SELECT NEW.*; RETURN NULL; END $$;
		CREATE TRIGGER also AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION also()`)
	s.Kinds = []load.Kind{s.ToLater(0.1, 0)}
	s.WatchFlush()
	r := s.Launch()
	s.Leads(r)
	s.RefuseLater()
	stop := s.Load(300)
	gone := 0
	for range kills {
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
