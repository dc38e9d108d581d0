// Killing a relay at work in its retry table. A seed picks the moment and the state in which the
// statement is met. What may arrive twice is exactly what has arrived and is sent again.

package stand

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// Work is what a relay is killed at.
type Work struct {
	Name  string
	Table string // that the statements in question write to
	begin func(*crash)
	off   func(*crash)      // sets the work off; nil: it is under way
	busy  func(*crash)      // waits for a moment in it that the seed picks; nil: begin has
	done  func(*crash) bool // says that there is no more of it; nil: there always is
	end   func(*crash)      // waits for what a new relay has to finish; nil: the checker does
	vary  func(*crash)      // sets what every other run of it differs in; nil: they do not
}

// crash is one run.
type crash struct {
	*Stand
	random *rand.Rand
	relay  *runner.Relay
	way    *netproxy.Proxy // its way to PostgreSQL
	stop   func()          // of the load
	made   bool            // the destination "later" is there
	holds  bool            // on_dead_letter: block
}

// Works are all of them.
var Works = []Work{
	{Name: "deferring", Table: "retry", begin: func(c *crash) {
		c.Kinds = []load.Kind{c.ToLater(0.5, 0)}
		c.flow()
		c.AwaitRows(checker.Deferred, 1+c.random.IntN(200))
	}},
	{Name: "dead-lettering", Table: "dead_letter", begin: func(c *crash) {
		c.Kinds = []load.Kind{c.Poison(0.2, 0)}
		c.flow()
		c.AwaitRows(checker.Open, 1+c.random.IntN(50))
	}, end: (*crash).letGo, vary: func(c *crash) {
		c.DeadLetters, c.holds = "on_dead_letter: block", true
		c.Keys = 1000 // enough to go on with those that nothing holds
	}},
	{Name: "replaying", Table: "dead_letter", begin: func(c *crash) {
		c.Kinds = []load.Kind{c.Poison(0.2, 0)}
		c.flow()
		c.AwaitRows(checker.Open, 40)
		c.Kinds = nil
		c.stop()
		c.AwaitRows(checker.Open, c.poisoned())
		c.stop = c.Load(100)
	}, off: func(c *crash) {
		c.T.Helper()
		args := append([]string{"dead-letters", "replay", "--all", "--wait", "0"}, c.Antidote()...)
		if result := c.Command(args...); result.Code != 0 {
			c.T.Fatalf("replay ends with %d: %s%s", result.Code, result.Stdout, result.Stderr)
		}
	}, busy: func(c *crash) { c.AwaitRows(checker.Replayed, c.random.IntN(30)) }, done: (*crash).noDeadLetters, end: func(c *crash) {
		c.Until("all dead letters to be replayed", c.noDeadLetters)
	}},
	{Name: "feeding", Table: "retry", begin: func(c *crash) {
		c.Kinds = []load.Kind{c.ToLater(0.5, 0)}
		c.flow()
		c.AwaitRows(checker.Deferred, 300)
	}, off: (*crash).fix, busy: func(c *crash) {
		c.MoreOf(c.Later(), 1+c.random.IntN(200))
	}, done: (*crash).nothingDeferred, vary: func(c *crash) { c.Ordering = "commit" }},
}

// flow starts a relay under load.
func (c *crash) flow() {
	c.T.Helper()
	c.WatchFlush()
	c.relay = c.LaunchVia(c.way)
	c.Leads(c.relay)
	c.MakeStops()
	if slices.ContainsFunc(c.Kinds, func(k load.Kind) bool { return k.Destination == c.Later() }) {
		c.RefuseLater()
	}
	c.stop = c.Load(300)
}

func (c *crash) noDeadLetters() bool   { return c.RowsIn(checker.Open) == 0 }
func (c *crash) nothingDeferred() bool { return c.RowsIn(checker.Deferred) == 0 }

func (c *crash) fix() {
	c.T.Helper()
	if !c.made {
		c.MakeLater()
		c.made = true
	}
}

func (w Work) on(s *Stand, seed uint64) *crash {
	s.T.Helper()
	s.Retry = "backoff: 100ms, max_backoff: 1s"
	c := &crash{Stand: s, random: rand.New(rand.NewPCG(seed, 5)), way: s.Postgres}
	return c
}

// Crash kills a relay at work on the stand, which routes, and has another one finish.
func (w Work) Crash(s *Stand, in state, seed uint64) {
	s.T.Helper()
	c := w.on(s, seed)
	// every other one, also of those in one state
	if w.vary != nil && (seed+seed/uint64(len(states)))%2 == 1 {
		w.vary(c)
	}
	s.T.Logf("seed %d: killed %s, %s; ordering %s, %s", seed, w.Name, in.name, s.Ordering, s.DeadLetters)
	w.begin(c)
	leave := in.enter(c, w)
	c.Must(c.relay.Kill())
	leave()
	c.Gone()
	bound := c.Unreported()
	c.fix()
	c.Start()
	c.More(100)
	c.finish(w, bound)
}

// finish ends the load and checks.
func (c *crash) finish(w Work, bound int) {
	c.T.Helper()
	c.stop()
	if w.end != nil {
		w.end(c)
	}
	c.CheckHistory(checker.History{MaxDuplicates: bound, MaxDead: c.poisoned(), Block: c.holds})
}

// letGo replays the dead letters that hold their keys, until nothing is held: each gives way to
// what came after it, poison too.
func (c *crash) letGo() {
	c.T.Helper()
	if !c.holds {
		return
	}
	c.AwaitRows(checker.Deferred, 1)
	args := append([]string{"dead-letters", "replay", "--all", "--wait", "10m"}, c.Antidote()...)
	c.Until("all dead letters to be replayed", func() bool {
		if result := c.Command(args...); result.Code != 0 {
			c.T.Fatalf("replay ends with %d: %s%s", result.Code, result.Stdout, result.Stderr)
		}
		return c.noDeadLetters() && c.nothingDeferred()
	})
}

// poisoned is how many dead letters there may be in the end: as many as there are events that no
// broker takes. What was replayed is not among the dead letters that are open.
func (c *crash) poisoned() (n int) {
	c.T.Helper()
	c.Query([]any{&n}, `SELECT count(*) FROM outbox WHERE length(routing_key) > 255 OR length(payload::text) >= $1`, poison)
	return n - c.RowsIn(checker.Replayed)
}

// CrashEach kills a relay at each work of the retry table once, on the kinds of broker in turn,
// each in another state.
func CrashEach(t *testing.T) {
	t.Helper()
	for i, w := range Works {
		w.crashOn(t, Kinds[i%len(Kinds)], i+1, 0)
	}
}

// CrashSeeds kills a relay at each work of the retry table, with each of the first so many seeds,
// on each kind of broker.
func CrashSeeds(t *testing.T, seeds int) {
	t.Helper()
	for _, kind := range Kinds {
		for i, w := range Works {
			for seed := range seeds {
				w.crashOn(t, kind, i+seed, uint64(seed))
			}
		}
	}
}

func (w Work) crashOn(t *testing.T, kind Kind, state int, seed uint64) {
	t.Helper()
	t.Run(fmt.Sprintf("%s/%s/%d", kind.Name, w.Name, seed), func(t *testing.T) {
		Parallel(t)
		w.Crash(Routed(t, kind), states[state%len(states)], seed)
	})
}
