package stand

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// This file kills a relay at work in its siding. A seed picks the moment and the state in which the statement is met; what may
// arrive twice is, exactly, what has arrived and is sent again.

// Work is what a relay is killed at.
type Work struct {
	Name  string
	Table string // that the statements in question write to
	begin func(*crash)
	// middle: it is always met in the middle; else in half of the runs at its first statement.
	middle bool
	off    func(*crash)      // sets the work off; nil: it is under way
	busy   func(*crash)      // waits for a moment in it that the seed picks; nil: begin has
	done   func(*crash) bool // says that there is no more of it; nil: there always is
	end    func(*crash)      // waits for what a new relay has to finish; nil: the checker does
}

// crash is one run.
type crash struct {
	*Stand
	random *rand.Rand
	relay  *devenv.Relay
	way    *devenv.Proxy // its way to PostgreSQL
	stop   func()        // of the load
	made   bool          // the destination "later" is there
}

// Works are all of them.
var Works = []Work{
	{Name: "parking", Table: "retry", begin: func(c *crash) {
		c.Kinds = []devenv.Kind{c.ToLater(0.5, 0)}
		c.flow()
		c.AwaitSided(devenv.Parked, 1+c.random.IntN(200))
	}},
	{Name: "dead-lettering", Table: "dead_letter", begin: func(c *crash) {
		c.Kinds = []devenv.Kind{c.Poison(0.2, 0)}
		c.flow()
		c.AwaitSided(devenv.Open, 1+c.random.IntN(50))
	}},
	{Name: "replaying", Table: "dead_letter", begin: func(c *crash) {
		c.Kinds = []devenv.Kind{c.Poison(0.2, 0)}
		c.flow()
		c.AwaitSided(devenv.Open, 40)
		c.Kinds = nil
		c.stop()
		c.AwaitSided(devenv.Open, c.poisoned())
		c.stop = c.Load(100)
	}, off: func(c *crash) {
		c.T.Helper()
		args := append([]string{"deadletters", "replay", "--all", "--wait", "0"}, c.Antidote()...)
		if result := c.Command(args...); result.Code != 0 {
			c.T.Fatalf("replay ends with %d: %s%s", result.Code, result.Stdout, result.Stderr)
		}
	}, busy: func(c *crash) { c.AwaitSided(devenv.Replayed, c.random.IntN(30)) }, done: (*crash).noLetters, end: func(c *crash) {
		c.Until(time.Minute, "all letters to be replayed", c.noLetters)
	}},
	{Name: "feeding", Table: "retry", begin: func(c *crash) {
		c.Kinds = []devenv.Kind{c.ToLater(0.5, 0)}
		c.flow()
		c.AwaitSided(devenv.Parked, 300)
	}, off: (*crash).mend, busy: func(c *crash) { c.MoreOf(c.Later(), 1+c.random.IntN(200)) }, done: (*crash).nothingParked},
	{Name: "cutting over", Table: "retry", begin: (*crash).beginCutOver, middle: true, off: (*crash).mend, busy: (*crash).cutOver, done: (*crash).nothingParked},
}

// flow starts a relay under load.
func (c *crash) flow() {
	c.T.Helper()
	c.flowAt(300)
}

func (c *crash) flowAt(rate float64) {
	c.T.Helper()
	c.WatchFlush()
	c.relay = c.LaunchVia(c.way)
	c.Leads(c.relay)
	c.MakeStops()
	c.stop = c.Load(rate)
}

func (c *crash) noLetters() bool     { return c.Sided(devenv.Open) == 0 }
func (c *crash) nothingParked() bool { return c.Sided(devenv.Parked) == 0 }

func (c *crash) mend() {
	c.T.Helper()
	if !c.made {
		c.MakeLater()
		c.made = true
	}
}

// state is one in which the relay's statement is met.
type state struct {
	name  string
	enter func(c *crash, w Work) (leave func())
}

// states are all of them. What leave lets go happens after the relay's death, or when another one leads.
var states = []state{
	{"whatever it is doing", func(c *crash, w Work) func() {
		w.run(c)
		return func() {}
	}},
	{"with a statement before its fence", func(c *crash, w Work) func() { return c.inside(w, beforeFence(w.Table)) }},
	{"with a statement behind its fence", func(c *crash, w Work) func() { return c.inside(w, behindFence(w.Table)) }},
	{"with statements that have not reached the server", func(c *crash, w Work) func() {
		w.run(c)
		c.way.Hold(devenv.Up)
		c.Must(c.way.WaitHeld(c.Within(30*time.Second), devenv.Up, 500)) // more than reports
		return func() { c.way.Release(devenv.Up) }
	}},
	{"with statements whose answers have not come", func(c *crash, w Work) func() {
		release := c.inside(w, behindFence(w.Table))
		c.way.Hold(devenv.Down)
		release()
		c.Gone() // it is done, and nobody hears of it
		return func() { c.way.Release(devenv.Down) }
	}},
	{"with events at the broker that are not confirmed", func(c *crash, w Work) func() {
		w.run(c)
		c.Broker.Hold(devenv.Down)
		c.Must(c.Broker.WaitHeld(c.Within(30*time.Second), devenv.Down, 1))
		return func() { c.Broker.Release(devenv.Down) }
	}},
}

// run has the relay at work.
func (w Work) run(c *crash) {
	c.T.Helper()
	if w.off != nil {
		w.off(c)
	}
	if w.busy != nil {
		w.busy(c)
	}
}

// over reports whether no more statement of the work will come.
func (w Work) over(c *crash) bool { return w.done != nil && w.done(c) }

// inside has a statement of the relay stand at a stop.
func (c *crash) inside(w Work, at Stop) (release func()) {
	c.T.Helper()
	if w.busy != nil && (w.middle || c.random.IntN(2) == 0) {
		w.run(c)
		release = c.Hold(at)
	} else {
		release = c.Hold(at)
		if w.off != nil {
			w.off(c)
		}
	}
	c.Until(time.Minute, "a statement to stand "+at.Name, func() bool { return c.waiting() > 0 || w.over(c) })
	return release
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
	s.T.Logf("seed %d: killed %s, %s", seed, w.Name, in.name)
	w.begin(c)
	leave := in.enter(c, w)
	c.Must(c.relay.Kill())
	leave()
	c.Broker.Delay(0)
	c.Gone()
	bound := c.Unreported()
	c.mend()
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
	c.CheckHistory(devenv.History{MaxDuplicates: bound, MaxDead: c.poisoned()})
}

// poisoned is how many dead letters there may be in the end: as many as there are events that no broker takes. What was
// replayed is not among the letters that are open.
func (c *crash) poisoned() (n int) {
	c.T.Helper()
	c.Query([]any{&n}, `SELECT count(*) FROM outbox WHERE length(routing_key) > 255 OR length(payload::text) >= $1`, poison)
	return n - c.Sided(devenv.Replayed)
}

// CrashSeeds kills a relay at each work of the siding, with each of the first so many seeds, on each kind of broker.
// CDC_RELAY_TEST_SEEDS is the most of them: CI has 45 minutes for everything.
func CrashSeeds(t *testing.T, seeds int) {
	t.Helper()
	if most, err := strconv.Atoi(os.Getenv("CDC_RELAY_TEST_SEEDS")); err == nil {
		seeds = min(seeds, most)
	}
	for _, kind := range Kinds {
		for i, w := range Works {
			for seed := range seeds {
				t.Run(fmt.Sprintf("%s/%s/%d", kind.Name, w.Name, seed), func(t *testing.T) {
					Parallel(t)
					w.Crash(Routed(t, kind), states[(i+seed)%len(states)], uint64(seed))
				})
			}
		}
	}
}
