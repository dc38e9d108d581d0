// What tests of a database that goes on at another server share.

package fault

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// started is a server until the test ends.
func started(t *testing.T) func(*pgserver.Postgres, error) *pgserver.Postgres {
	return func(pg *pgserver.Postgres, err error) *pgserver.Postgres {
		t.Helper()
		await.Must(t, err)
		t.Cleanup(func() {
			if err := pg.Close(); err != nil {
				t.Error(err)
			}
		})
		return pg
	}
}

// before is what a relay has left when it was stopped.
type before struct {
	round    string   // of the keys
	deferred []string // of key a, for the destination "later"
	dead     string   // of key b
	// how many events may come twice: those that were on their way when the destination refused;
	// -1, any number, when the server was stopped, which forgets the last reports
	twice int
}

func (b before) a() string { return "a" + b.round }
func (b before) b() string { return "b" + b.round }

// leave has a relay deliver, defer and dead-letter events, and stops it. save: the server is
// stopped next, and what is deferred or dead is not to come twice.
func leave(t *testing.T, pg *pgserver.Postgres, save bool) (s *stand.Stand, b before) {
	t.Helper()
	s = stand.On(t, pg, stand.SharedRabbitMQ(t))
	s.Route()
	return s, leaveOn(s, "", save)
}

func leaveOn(s *stand.Stand, round string, save bool) (b before) {
	s.T.Helper()
	b.round = round
	r := s.Start()
	s.Must(s.Consumer.WaitIDs(s.Context(), []string{event(s, b.a(), 1, load.Kind{}), event(s, b.b(), 1, load.Kind{})}))
	b.deferred = []string{event(s, b.a(), 2, s.ToLater(1, 0)), event(s, b.a(), 3, s.ToLater(1, 0))}
	b.dead = event(s, b.b(), 2, s.Poison(1, 0))
	s.AwaitRows(checker.Deferred, 2)
	s.AwaitRows(checker.Open, 1)
	b.twice = s.RepeatsOver(1, 2)
	if save {
		saveSlot(s)
		b.twice = -1
	}
	stopped(s, r, 0)
	return b
}

// saveSlot waits until the slot's file has what was settled by now. Before PostgreSQL 17 a server
// that is stopped keeps no more of it than was saved when restart_lsn last advanced: that takes a
// checkpoint, and then a report.
func saveSlot(s *stand.Stand) {
	s.T.Helper()
	var at string
	s.Query([]any{&at}, `SELECT pg_current_wal_insert_lsn()::text`)
	seq := 0
	s.Until("the slot to be saved", func() (saved bool) {
		s.SQL(`CHECKPOINT`)
		seq++
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{event(s, "saves", seq, load.Kind{})}))
		s.Reported()
		s.Query([]any{&saved}, `SELECT restart_lsn >= $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1`, s.Slot, at)
		return saved
	})
}

// asks wants exit 3, and exit 2 for an acceptance that does not say which it is. It returns what
// the relay said.
func asks(s *stand.Stand, words ...string) (said string) {
	s.T.Helper()
	r := s.Launch()
	s.Exits(r, 3, append(words, "--same-data", "--copy")...)
	said = r.Log()
	refused := [][]string{nil}
	if strings.Contains(said, "--delivered") {
		refused = append(refused, []string{"--same-data"})
	}
	for _, flags := range refused {
		result := s.Command(append([]string{"accept", stand.FindingID(s.T, said)}, flags...)...)
		if result.Code != 2 || !strings.Contains(result.Stderr, "only you know") {
			s.T.Errorf("accept %q without a word about the server ends with %d: %s%s", flags, result.Code, result.Stdout, result.Stderr)
		}
	}
	return said
}

// goesOn accepts the server as the one that goes on. What was deferred arrives before what is
// committed then, and the dead letter can be replayed. On another system all else was delivered
// before, so there is nothing to recover, and no row to copy if the slot is lost later.
func (b before) goesOn(s *stand.Stand, words ...string) {
	s.T.Helper()
	said := asks(s, words...)
	flags := []string{"--same-data"}
	otherSystem := strings.Contains(said, "--delivered")
	if otherSystem {
		flags = append(flags, "--delivered", "all")
	}
	s.Accept(said, flags...)
	r := s.Start()
	if otherSystem {
		var gaps int
		s.Query([]any{&gaps}, `SELECT count(*) FROM cdc_relay.gap`)
		if gaps != 0 {
			s.T.Errorf("%d gaps are kept", gaps)
		}
	}
	event(s, b.a(), 4, s.ToLater(1, 0))
	s.Must(s.Consumer.WaitIDs(s.Context(), []string{event(s, b.b(), 3, load.Kind{})}))
	s.AwaitRows(checker.Deferred, 3) // nothing has passed them
	s.MakeLater()
	s.AwaitEmpty()
	operated(s, append([]string{"dead-letters", "replay", number(s, b.dead), "--wait", "10m"}, s.Antidote()...)...)
	s.CheckHistory(checker.History{NewPositions: true, MaxDuplicates: b.twice})
	stopped(s, r, 0)
}
