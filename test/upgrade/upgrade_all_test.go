//go:build testall

// Package upgrade has an earlier version of the relay and this one take over from each other, under
// load: the older one is a binary built from this repository's history. What is said of it in
// docs/running.md is tested here.
package upgrade

import (
	_ "embed"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

func TestMain(m *testing.M) { servers.Main(m) }

//go:embed earlier-commit
var earlierCommit string

// commit is the hash in a file of this directory, whose other lines are comments.
func commit(t *testing.T, file string) string {
	t.Helper()
	hash := regexp.MustCompile(`(?m)^[0-9a-f]{40}$`).FindString(file)
	if hash == "" {
		t.Fatalf("no full hash of a commit in %q", file)
	}
	return hash
}

// The leader is stopped in order and hands the slot over: nothing comes twice.
func TestStopped(t *testing.T) {
	stand.KindKafka.OnRouted(t, func(s *stand.Stand) {
		u := begin(s)
		u.lose = func(leader *runner.Relay) {
			if code := leader.Stop(s.T); code != 0 {
				s.T.Errorf("the leader stops with %d", code)
			}
		}
		u.roll()
		s.CheckHistory(checker.History{MaxDuplicates: 0, MaxDead: -1})
	})
}

// The leader dies.
func TestKilled(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		u := begin(s)
		u.lose = func(leader *runner.Relay) { s.Must(leader.Signal(syscall.SIGKILL)) }
		u.roll()
		s.CheckHistory(checker.History{MaxDuplicates: -1, MaxDead: -1})
	})
}

// upgrade is two versions on a stand.
type upgrade struct {
	*stand.Stand
	older, newer string // binaries
	lose         func(leader *runner.Relay)
	leader       *runner.Relay
}

func begin(s *stand.Stand) *upgrade {
	s.T.Helper()
	s.Retry = "backoff: 100ms, max_backoff: 1s"
	s.WatchFlush()
	return &upgrade{Stand: s, older: runner.BuildAt(s.T, commit(s.T, earlierCommit)), newer: s.Binary}
}

// roll goes from the older version to the newer one, back, and to the newer one again. In all of it
// some events are deferred, for their destination is missing, and some are dead letters, which
// operators replay or discard by commands of the version that does not lead; each version reads,
// feeds and moves rows that the other one wrote.
func (u *upgrade) roll() {
	u.T.Helper()
	u.Kinds = []load.Kind{u.ToLater(0.3, 0), u.Poison(0.05, 0)}
	u.leader = u.start(u.older)
	u.Leads(u.leader)
	stop := u.Load(150)
	u.goesOn()
	// beside the new version, which has brought the schema up to itself
	u.replaces(u.newer, u.goesOn)
	u.goesOn()
	u.order(u.older, checker.Discarded, "discard", "--id", u.RetryRowIDs(checker.Open)[0])
	u.expand()
	u.replaces(u.older, u.goesOn)
	u.goesOn()
	stop()
	u.Kinds = []load.Kind{u.ToLater(0.3, 0)}
	stop = u.Load(150)
	u.order(u.newer, checker.Replayed, append([]string{"replay", "--all"}, u.Antidote()...)...)
	u.MakeLater()
	u.MoreOf(u.Later(), 20)
	u.replaces(u.newer, func() {}) // while what was deferred is delivered
	u.More(100)
	stop()
	u.AwaitEmpty()
}

// replaces has a relay of a version stand by, and loses the leader once meanwhile has returned.
func (u *upgrade) replaces(version string, meanwhile func()) {
	u.T.Helper()
	next := u.start(version)
	meanwhile()
	u.lose(u.leader)
	u.Leads(next)
	u.leader = next
}

// start starts a relay of a version.
func (u *upgrade) start(version string) *runner.Relay {
	u.T.Helper()
	u.Binary = version
	r := u.Start()
	if older := strings.Contains(r.Log(), `"version":"`+commit(u.T, earlierCommit)[:7]+`"`); older != (version == u.older) {
		u.T.Fatalf("%s is the wrong version: %s", version, r.Log())
	}
	return r
}

// goesOn waits until events arrive, are deferred and are given up.
func (u *upgrade) goesOn() {
	u.T.Helper()
	deferred, dead := u.RowsIn(checker.Deferred), u.RowsIn(checker.Open)
	u.More(50)
	u.AwaitRows(checker.Deferred, deferred+10)
	u.AwaitRows(checker.Open, dead+2)
}

// order has the leader carry out a command of a version on dead letters, of which some come to a
// state by that.
func (u *upgrade) order(version string, state checker.RetryRowState, args ...string) {
	u.T.Helper()
	u.Binary = version
	before := u.RowsIn(state)
	args = append([]string{"dlq", args[0], "--wait", "0"}, args[1:]...)
	if result := u.Command(args...); result.Code != 0 {
		u.T.Fatalf("%v ends with %d: %s%s", args, result.Code, result.Stdout, result.Stderr)
	}
	u.Until("dead letters to be "+string(state), func() bool { return u.RowsIn(state) > before })
}

// expand makes the schema that of a version to come: with more columns than either version here
// knows, and no other difference, as each migration must be. Each table by itself: two locks, taken
// in another order than the leader's, could be a deadlock.
func (u *upgrade) expand() {
	u.T.Helper()
	var tables []string
	u.Query([]any{&tables}, `SELECT array_agg(oid::regclass::text) FROM pg_class WHERE relnamespace = 'cdc_relay'::regnamespace AND relkind = 'r'`)
	for _, table := range tables {
		u.SQL(`ALTER TABLE ` + table + ` ADD COLUMN of_a_version_to_come text`)
	}
	u.SQL(`INSERT INTO cdc_relay.migration (version) VALUES (1000)`)
}
