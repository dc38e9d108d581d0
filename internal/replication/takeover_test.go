package replication

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
)

func (b *bench) takeOver(o *otherTool, drop bool) (setup.TakeoverState, error) {
	b.t.Helper()
	return setup.TakeOver(await.Context(b.t), b.cfg, o.slot, drop)
}

// now does what can be done now. Other tests have transactions open on the same server.
func (b *bench) now(o *otherTool) error {
	b.t.Helper()
	for {
		_, err := b.takeOver(o, false)
		if err == nil || !strings.Contains(err.Error(), olderText) {
			return err
		}
	}
}

const olderText = "transactions are open that may be older than the publication"

func (b *bench) takeComplete(o *otherTool) setup.TakeoverState {
	b.t.Helper()
	b.waitNoWalsenderOf(o.slot)
	s, err := b.takeOver(o, false)
	if err != nil || !s.Complete {
		b.t.Fatalf("%+v, %v", s, err)
	}
	return s
}

// takePassed begins a takeover of a slot whose program it starts, and returns when that has
// confirmed a commit, "both", from where on our publication has all rows.
func (b *bench) takePassed(o *otherTool) {
	b.t.Helper()
	o.start()
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "below", "leave the program that reads it", toolName)
	b.insert("both")
	o.waitSeen("both")
	o.confirm()
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "has passed", "active for", toolName)
}

// The whole way: the other program has to pass a position, and to be stopped. What it has published
// and not confirmed comes twice, everything else once; also when the relay is started again before
// it has reported anything.
func TestTakeover(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.insert("before") // the other program sends it
	b.takePassed(o)
	b.wantStop(b.run().wait(), event.ExitOperator, "takeover", o.slot, "--from-slot "+o.slot)
	b.wantStop(setup.Init(await.Context(t), b.cfg, setup.InitOptions{}), event.ExitOperator, "takeover")
	b.wantFinding("slot", "is not complete", "takeover --from-slot "+o.slot)
	b.insert("twice")
	o.waitSeen("twice")
	o.kill()
	b.insert("after")
	s := b.takeComplete(o)
	if s.Confirmed != o.at().String() || s.Dropped {
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
	_, err := b.takeOver(o, true)
	b.wantStop(err, event.ExitOperator, "takeover", toolName)
	o.kill()
	await.Until(t, "the slot to be dropped", func() bool {
		s, err := b.takeOver(o, true)
		return err == nil && s.Complete && s.Dropped && !o.exists()
	})
	b.goesOn("at last")

	// It drops its own slot alone: now another one has the name.
	b.exec(`SELECT pg_create_physical_replication_slot($1)`, o.slot)
	_, err = b.takeOver(o, true)
	if stop := b.wantStop(err, event.ExitOperator, "takeover", "physical"); strings.Contains(stop.Fix, "pg_") {
		t.Errorf("the fix for a slot of another kind is %s", stop.Fix)
	}
	b.exec(`SELECT pg_drop_replication_slot($1)`, o.slot)

	// The position of a takeover belongs to one incarnation of the slot: one that is adopted later,
	// perhaps on another server with a lower WAL position, must not skip up to it.
	b.exec(`UPDATE cdc_relay.slots SET took_until = 'FFFFFFFF/0', state = 'adopt'`)
	b.goesOn("after an adoption")
}

// As long as the other slot stands below that position, rows may be in it alone: nothing completes,
// whether its program runs or not.
func TestTakeoverWaitsForTheOtherSlot(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.insert("theirs alone")
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "nobody reads it", o.at().String(), "start the program")
	o.start()
	o.waitSeen("theirs alone")
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "below", toolName)
	o.confirm() // of a commit before
	if err := b.now(o); err == nil {
		t.Error("complete below the beginning of the publication")
	}
	b.insert("both")
	o.waitSeen("both")
	o.confirm()
	b.wantStop(b.now(o), event.ExitOperator, "takeover", "has passed")
	o.kill()
	b.takeComplete(o)
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
