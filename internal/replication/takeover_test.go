package replication

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	replicationslot "github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/takeover"
)

// taking is a takeover on its way.
type taking struct {
	b      *bench
	stop   context.CancelFunc
	states chan takeover.State
	done   chan struct{}
	state  takeover.State
	err    error
}

func (b *bench) take(o *otherTool, opt takeover.Options) *taking {
	b.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	k := &taking{b: b, stop: stop, states: make(chan takeover.State, 1000), done: make(chan struct{})}
	opt.From, opt.Tell = o.slot, func(s takeover.State) {
		select {
		case k.states <- s:
		case <-ctx.Done():
		}
	}
	go func() {
		defer close(k.done)
		k.state, k.err = takeover.Run(ctx, b.cfg, opt)
	}()
	b.t.Cleanup(func() { stop(); <-k.done })
	return k
}

// takeover is a run of the command that has met the server, and no more.
func (b *bench) takeover(c *source.Config, o *otherTool) *takeover.Takeover {
	b.t.Helper()
	pool, err := source.ConnectPool(c)
	await.Must(b.t, err)
	b.t.Cleanup(pool.Close)
	stream, id, err := replicationslot.Connect(await.Context(b.t), pool, c)
	await.Must(b.t, err)
	source.CloseStream(stream)
	return &takeover.Takeover{C: c, Opt: takeover.Options{From: o.slot}, Pool: pool, ID: id}
}

// asLongAsItTakes waits for the other program.
var asLongAsItTakes = takeover.Options{Wait: -1}

// waitTold returns when the command says so.
func (k *taking) waitTold(what string, ok func(takeover.State) bool) takeover.State {
	k.b.t.Helper()
	for {
		select {
		case s := <-k.states:
			if ok(s) {
				return s
			}
		case <-k.done:
			k.b.t.Fatalf("ended, before it said %s: %+v, %v", what, k.state, k.err)
		case <-time.After(2 * time.Minute):
			k.b.t.Fatalf("it has said nothing for two minutes: no %s", what)
		}
	}
}

func (k *taking) wait() (takeover.State, error) {
	k.b.t.Helper()
	await.Closed(k.b.t, "the takeover to end", k.done)
	return k.state, k.err
}

func (k *taking) waitComplete() takeover.State {
	k.b.t.Helper()
	s, err := k.wait()
	if err != nil || !s.Complete {
		k.b.t.Fatalf("%+v, %v", s, err)
	}
	return s
}

// now checks once.
func (b *bench) now(o *otherTool) error {
	_, err := b.take(o, takeover.Options{}).wait()
	return err
}

// takePassed begins a takeover of a slot whose program it starts, and returns when that has
// confirmed a commit, "both", behind the start of ours.
func (b *bench) takePassed(o *otherTool) (*taking, takeover.State) {
	b.t.Helper()
	o.start()
	k := b.take(o, asLongAsItTakes)
	k.waitTold("that the other slot is below", overlapping)
	b.insert("both")
	o.waitSeen("both")
	o.confirm()
	return k, k.waitTold("that the other slot has passed", passed)
}

func overlapping(s takeover.State) bool { return s.Start != 0 && !s.Passed }
func passed(s takeover.State) bool      { return s.Passed }

// The whole way: the other program has to pass our start, and to be stopped. What it has published
// and not confirmed comes twice, everything else once; also when the relay is started again before
// it has reported anything.
func TestTakeover(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.insert("before") // our slot does not have it
	k, overlap := b.takePassed(o)
	if !overlap.Active || !strings.Contains(overlap.Holder, toolName) {
		t.Errorf("the program is not named: %+v", overlap)
	}
	b.wantStop(b.run().wait(), event.ExitOperator, "takeover", o.slot, "--from-slot "+o.slot)
	b.wantStop(setup.Init(await.Context(t), b.cfg, setup.InitOptions{}), event.ExitOperator, "takeover")
	b.wantFinding("slot", "is not complete", "takeover --from-slot "+o.slot)
	b.insert("twice")
	o.waitSeen("twice")
	o.kill()
	b.insert("after")
	s := k.waitComplete()
	if s.Confirmed != o.at() || s.Dropped {
		t.Errorf("%+v, the other slot stands at %s", s, o.at())
	}
	p := b.through()
	b.held = true
	for range 2 {
		r := b.run()
		r.waitSeen("after")
		b.wantSeen("twice", "after")
		r.crash(p)
		b.waitFree()
	}
	b.held = false
	b.goesOn("later")
	b.wantLine(check.LevelWarn, "slot before", "retains WAL")
	o.start()
	b.wantLine(check.LevelWarn, "slot before", "in use again", toolName)
	_, err := b.take(o, takeover.Options{Wait: -1, Drop: true}).wait()
	b.wantStop(err, event.ExitOperator, "takeover", toolName)
	o.kill()
	await.Until(t, "the slot to be dropped", func() bool {
		s, err := b.take(o, takeover.Options{Wait: -1, Drop: true}).wait()
		return err == nil && s.Complete && s.Dropped && !o.exists()
	})
	b.goesOn("at last")

	// It drops its own slot alone: now another one has the name.
	b.exec(`SELECT pg_create_physical_replication_slot($1)`, o.slot)
	_, err = b.take(o, takeover.Options{Drop: true}).wait()
	if stop := b.wantStop(err, event.ExitOperator, "takeover", "physical"); strings.Contains(stop.Fix, "pg_") {
		t.Errorf("the fix for a slot of another kind is %s", stop.Fix)
	}
	b.exec(`SELECT pg_drop_replication_slot($1)`, o.slot)

	// The position of a takeover belongs to one incarnation of the slot: one that is adopted later,
	// perhaps on another server with a lower WAL position, must not skip up to it.
	b.exec(`UPDATE cdc_relay.slots SET took_until = 'FFFFFFFF/0', state = 'adopt'`)
	b.goesOn("after an adoption")
}

// As long as the other slot stands below our start, rows may be in it alone: nothing completes,
// whether its program runs or not.
func TestTakeoverWaitsForTheOtherSlot(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.insert("theirs alone")
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "nobody reads it", o.at().String(), "start the program")
	k := b.take(o, asLongAsItTakes)
	k.waitTold("that nobody reads the other slot", func(s takeover.State) bool { return overlapping(s) && !s.Active })
	o.start()
	o.waitSeen("theirs alone")
	k.waitTold("that somebody reads it", func(s takeover.State) bool { return overlapping(s) && s.Active })
	b.wantStop(b.now(o), event.ExitOperator, "takeover", toolName)
	o.confirm() // of a commit before our start
	if err := b.now(o); err == nil {
		t.Error("complete below our start")
	}
	b.insert("both")
	o.waitSeen("both")
	o.confirm()
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "has passed")
	o.kill()
	k.waitComplete()
	if seen, _ := o.seen(); !slices.Equal(seen, []string{"theirs alone", "both"}) {
		t.Errorf("published: %v", seen)
	}
	b.goesOn("ours")
	b.wantSeen("ours")
}

// waitNoWalsenderOf returns when nobody holds the slot, or it is not there.
func (b *bench) waitNoWalsenderOf(slot string) {
	b.t.Helper()
	await.Until(b.t, "nobody to hold the slot", func() bool {
		return b.text(`SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1 AND active`, slot) == "0"
	})
}
