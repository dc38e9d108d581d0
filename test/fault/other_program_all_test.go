//go:build testall

package fault

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// changes is what a slot of wal2json has sent since it was asked last: the ids of the outbox's
// rows. (internal/replication has pgoutput, test/long/debezium has decoderbufs.)
const changes = `SELECT coalesce(array_agg(c->>'value'), '{}')
	FROM pg_logical_slot_get_changes($1, NULL, NULL::int, 'format-version', '2') x, jsonb_array_elements(x.data::jsonb->'columns') c
	WHERE x.data::jsonb->>'action' = 'I' AND x.data::jsonb->>'table' = 'outbox' AND c->>'name' = 'id'`

// The relay takes the place of another program under load, and everything is killed on the way: the
// command, again and again, and the relay after it. What the program has confirmed does not come
// again, everything else comes, in the order of its keys.
func TestTakeoverFromAnotherProgram(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		other := s.Slot + "_other"
		s.SQL(`SELECT pg_create_logical_replication_slot($1, 'wal2json')`, other)
		confirmed := map[string]bool{}
		program := func() { // it publishes what there is, and confirms it
			s.T.Helper()
			var ids []string
			s.Query([]any{&ids}, changes, other)
			for _, id := range ids {
				confirmed[id] = true
			}
		}
		stop := s.Load(200)
		defer stop()
		written := func(n int) {
			s.T.Helper()
			want := s.Committed() + n
			s.Until("rows to be written", func() bool { return s.Committed() >= want })
		}
		takeover := []string{"takeover", "--from-slot", other}
		killed := func(times int) { // with SIGKILL, at some moment of its work
			s.T.Helper()
			for range times {
				ctx, cancel := context.WithTimeout(context.Background(), rand.N(400*time.Millisecond))
				_, _ = runner.RunCommand(ctx, s.Binary, s.Config(), takeover...)
				cancel()
			}
		}

		written(30)
		program()
		killed(5)
		if res := s.Command(takeover...); res.Code != 3 {
			s.T.Fatalf("it is not to be complete, and exits %d: %s%s", res.Code, res.Stdout, res.Stderr)
		}
		written(30)
		program()
		written(30)
		killed(5)
		if res := s.Command(append(takeover, "--drop", "--yes")...); res.Code != 0 {
			s.T.Fatalf("it is to be complete, and exits %d: %s%s", res.Code, res.Stdout, res.Stderr)
		}
		r := s.Start()
		s.More(30)
		s.Must(r.Kill())
		bound := s.Unreported()
		s.Start()
		written(30)
		stop()

		committed, err := load.ReadCommitted(s.Context(), s.DB)
		s.Must(err)
		ours := slices.DeleteFunc(committed, func(row checker.Row) bool { return confirmed[row.ID] })
		if len(confirmed) == 0 || len(ours) == 0 {
			s.T.Fatalf("%d for the other program, %d for the relay: this test shows nothing", len(confirmed), len(ours))
		}
		s.CheckHistory(checker.History{Committed: ours, MaxDuplicates: bound})
		for _, d := range s.Consumer.Deliveries() {
			if confirmed[d.ID] {
				s.T.Errorf("%s was confirmed by the other program, and sent by the relay", d.ID)
			}
		}
	})
}
