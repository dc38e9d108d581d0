//go:build testall

package fault

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The database goes on at another server, or a copy of it is started beside it. What is deferred or
// dead comes along when it is the same data, before newer events of its keys, and is never sent by
// a copy. Only an operator knows which of the two it is: the relay stops (exit 3) and asks.
//
// They run one after the other, with one server as the original.
func TestOtherServer(t *testing.T) {
	stand.Parallel(t)
	pg := ownPostgres(t)
	for name, part := range otherServers {
		t.Run(name, func(t *testing.T) { part(t, pg) })
	}
}

// otherServers are the parts of TestOtherServer; other_server_nightly_test.go has more.
var otherServers = map[string]func(*testing.T, *pgserver.Postgres){"dump, a copy": copiedDump, "backup": restoredBackup}

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

// staysACopy accepts the server as a copy, with a broker of its own: it sends what is committed
// there from now on, not what was deferred or waits, and leaves those rows as they are.
func (b before) staysACopy(c *stand.Stand, words ...string) {
	c.T.Helper()
	c.Accept(asks(c, words...), "--copy")
	if result := c.Command("recover"); result.Code != 2 {
		c.T.Errorf("recover on a copy ends with %d, and its original has these rows: %s%s", result.Code, result.Stdout, result.Stderr)
	}
	c.MakeLater() // it could send them
	var ids []string
	r := c.Start()
	for _, kind := range []load.Kind{c.ToLater(1, 0), {}} {
		ids = append(ids, event(c, b.a(), 5, kind), event(c, b.b(), 5, kind))
	}
	c.Must(c.Consumer.WaitIDs(c.Context(), ids))
	c.Reported()
	stopped(c, r, 0)
	c.Must(c.Consumer.Drain(c.Context()))
	for _, d := range c.Consumer.Deliveries() {
		if !slices.Contains(ids, d.ID) {
			c.T.Errorf("the copy sent event %s, which the original sends", d.ID)
		}
	}
	var left []string
	c.Query([]any{&left}, `SELECT array_agg(convert_from(id, 'UTF8')) FROM (SELECT id FROM cdc_relay.retry UNION ALL SELECT id FROM cdc_relay.dead_letter WHERE state = 'open') r`)
	slices.Sort(left)
	want := append(slices.Clone(b.deferred), b.dead)
	slices.Sort(want)
	if !slices.Equal(left, want) {
		c.T.Errorf("the copy has %q of the original, want %q", left, want)
	}
}

// original has the original send what is its own.
func (b before) original(s *stand.Stand) {
	s.T.Helper()
	r := s.Start()
	event(s, b.a(), 4, s.ToLater(1, 0))
	s.MakeLater()
	s.AwaitEmpty()
	operated(s, append([]string{"dead-letters", "replay", number(s, b.dead), "--wait", "10m"}, s.Antidote()...)...)
	s.Check(b.twice)
	stopped(s, r, 0)
}

// A dump is restored into another cluster: another system identifier, no slot, lower positions.
func copiedDump(t *testing.T, pg *pgserver.Postgres) {
	to := ownPostgres(t)
	s, b := leave(t, pg, false)
	s.Must(to.RestoreDump(s.Context(), pg, s.Database()))
	b.staysACopy(s.Copy(to, stand.SharedRabbitMQ(t)), "does not exist here")
	b.original(s)
}

// A base backup is restored: the same system identifier, the next timeline, no slot.
func restoredBackup(t *testing.T, pg *pgserver.Postgres) {
	s, b := leave(t, pg, false)
	s.Move(started(t)(pgserver.StartRestored(s.Context(), pg)))
	b.goesOn(s, "on timeline 1", "on timeline 2")
}
