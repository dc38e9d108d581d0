//go:build testall

package fault

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// PostgreSQL refuses the row of an event that is to be deferred: it alone is not, with what follows
// it of its key, and everybody is told. Nothing is lost: the slot stays before it, also over a
// crash, and when the row is taken all goes on.
func TestRowThatPostgreSQLRefuses(t *testing.T) {
	stand.KindKafka.OnRouted(t, func(s *stand.Stand) {
		s.Retry = "backoff: 50ms, max_backoff: 200ms"
		r := s.StartWatched()
		s.SQL(`ALTER TABLE cdc_relay.retry ADD CONSTRAINT nobody_called_refused CHECK (key IS DISTINCT FROM 'refused')`)
		// In one statement: they are deferred in one INSERT, too, which fails over one of them.
		var refused string
		s.Query([]any{&refused}, `WITH all_of_them AS (INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, destination)
			SELECT gen_random_uuid(), 'order', key, 'placed', jsonb_build_object('key', key, 'seq', seq), $1
			FROM generate_series(1, 3) seq, unnest('{before, refused, behind}'::text[]) key RETURNING id, aggregateid, payload)
			SELECT id::text FROM all_of_them WHERE aggregateid = 'refused' AND payload->>'seq' = '1'`, s.Later())
		s.AwaitRows(checker.Deferred, 6)
		passes := event(s, "refused", 4, load.Kind{})
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{passes}))
		told(s, r, refused)
		var commit pglogrepl.LSN
		s.Query([]any{&commit}, `SELECT max(commit_lsn) FROM cdc_relay.retry`)
		s.Must(r.Kill())
		s.Gone()
		bound := s.Unreported()
		r = s.Start()
		told(s, r, refused)
		if now := s.Flush(); now > commit {
			s.T.Errorf("the slot has gone on to %s, and the transaction whose event has no row is at %s", now, commit)
		}
		s.SQL(`ALTER TABLE cdc_relay.retry DROP CONSTRAINT nobody_called_refused`)
		s.AwaitRows(checker.Deferred, 9)
		s.Until("nothing to be refused", func() bool { return s.Metric(r, "cdc_relay_refused_rows") == 0 })
		if said := operated(s, "status", "--admin", r.AdminSocket()); strings.Contains(said.Stdout, "refused ") {
			s.T.Errorf("the status still tells of a refused row: %s", said.Stdout)
		}
		s.Until("the slot to go on", func() bool { return s.Flush() > commit })
		s.MakeLater()
		s.Check(bound)
		stopped(s, r, 0)
	})
}

// told waits until metric, status and readiness tell of one event whose row is refused, and of two
// behind it.
func told(s *stand.Stand, r *runner.Relay, id string) {
	s.T.Helper()
	s.Until("a row to be refused", func() bool { return s.Metric(r, "cdc_relay_refused_rows") == 1 })
	s.Until("two events behind it", func() bool {
		var said struct {
			Deferred struct {
				Refused []struct {
					ID     string
					Error  string
					Behind int
				}
			}
		}
		_, body, err := r.Get(s.Context(), "/api/v1/status")
		s.Must(err)
		s.Must(json.Unmarshal([]byte(body), &said))
		rows := said.Deferred.Refused
		return len(rows) == 1 && rows[0].ID == id && rows[0].Behind == 2 && strings.Contains(rows[0].Error, "nobody_called_refused")
	})
	said := operated(s, "status", "--admin", r.AdminSocket()).Stdout
	for _, words := range []string{"the database refuses the row of an event", "refused    1 row by the database", id, "nobody_called_refused", "2 events behind it"} {
		if !strings.Contains(said, words) {
			s.T.Errorf("the status does not say %q: %s", words, said)
		}
	}
	code, ready, err := r.Get(s.Context(), "/readyz")
	s.Must(err)
	if code != 200 || !strings.Contains(ready, `"refused_total":1`) || !strings.Contains(ready, id) {
		s.T.Errorf("/readyz is %d: %s", code, ready)
	}
}
