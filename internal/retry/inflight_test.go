package retry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Chains in flight are left alone by whoever else finds them, and looked at afterwards.

// refuse has the database refuse the ends of runs that begin with this result, until the test says
// otherwise.
func (f *fixture) refuse(result string) {
	f.store.set(func() {
		f.store.fault = func(call string) (error, bool) {
			if strings.HasPrefix(call, "apply "+result) {
				return &store.Refused{Err: errLost}, false
			}
			return nil, false
		}
	})
}

// accept ends all faults of the database.
func (f *fixture) accept() { f.store.set(func() { f.store.fault = nil }) }

// openGates opens all gates, whether their destinations accept or not.
func (f *fixture) openGates() {
	f.line.set(func() { clear(f.line.paused) })
	signal(f.line.changed)
}

// A gate is not probed with a chain whose end is not committed: its first row was perhaps
// delivered.
func TestNoProbeOfAChainInFlight(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.park(nil, "1 k x/a", "2 k x/a")
		f.settle()
		f.line.mend("x/a")
		f.answers(map[string]*sink.Fault{"2": itsRoute})
		f.refuse("delivered 1")
		f.openGates()
		f.pass(20 * time.Second) // the gate that 2 has shut is due to be probed
		f.equal("table", f.table(), "1 2")
		f.accept()
		f.answers(nil)
		f.pass(30 * time.Second)
		f.equal("table", f.table(), "")
		f.equal("sent", f.line.sentIDs(), "1 2")
	})
}

// It is probed with another: the end of the first is perhaps refused for ever.
func TestProbeBesideAChainInFlight(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.park(nil, "1 k x/b", "2 k x/a")
		f.answers(map[string]*sink.Fault{"2": itsRoute})
		f.refuse("delivered 1")
		f.openGates()
		f.settle() // 2 has shut its gate
		f.park(nil, "3 j x/a")
		f.settle()
		f.equal("table", f.table(), "1 2 3")
		f.line.mend("x/a")
		f.pass(time.Minute)
		f.equal("table", f.table(), "1 2")
	})
}

// Nor does the search for a chain to probe a gate with find one.
func TestNoSearchFindsAChainInFlight(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.refuse("delivered 1")
		f.park(nil, "1 k x/a")
		f.settle()
		f.line.shut("x")
		f.park(itsUnit, "2 j x/b")
		f.settle()
		f.Ask(store.DeadLetter, "2") // nothing is left that the gate may be probed with
		f.pass(time.Minute)
		f.equal("table", f.table(), "1")
		if log := f.line.said(); strings.Count(log, "offer 1") != 1 {
			t.Errorf("log:\n%s", log)
		}
		f.accept()
		f.pass(10 * time.Second)
		f.equal("table", f.table(), "")
	})
}

// A row that becomes too old while it is with a lane is what the lane says it is.
func TestNoAgeOfAChainInFlight(t *testing.T) {
	inBubble(t, Config{DestinationMaxAge: time.Hour}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.park(itsRoute, "1 k x/a", "2 k x/a")
		f.pass(59 * time.Minute)
		f.line.mend("x/a")
		f.line.set(func() { f.line.keep = true })
		f.pass(10 * time.Minute)
		f.equal("letters", f.letters(), "")
		f.line.set(func() { f.line.keep = false })
		f.line.release(0) // the probe
		f.pass(time.Second)
		f.equal("table", f.table(), "")
		f.equal("sent", f.line.sentIDs(), "1 2")
	})
}

// A chain that a sweep meets in flight is looked at when its end is committed: no other sweep comes
// for it.
func TestSweepMeetsAChainInFlight(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.line.shut("x/b")
		f.start()
		f.park(itsRoute, "0 j x/a", "1 k x/b", "2 k x/a")
		f.settle()
		f.line.mend("x/b")
		f.refuse("delivered 1")
		f.openGates() // 0 and 2 are refused, and shut x/a again
		f.settle()
		f.line.mend("x/a")
		f.openGates()
		f.settle()
		f.equal("table", f.table(), "1 2")
		f.accept()
		f.pass(10 * time.Second)
		f.equal("table", f.table(), "")
		f.equal("sent", f.line.sentIDs(), "1 0 2")
	})
}

// While the end of a run is refused nothing of its chain may go, and its lane must not keep new
// events in memory for it.
func TestNotNowOfARefusedEnd(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.set(func() { f.line.keep = true })
		f.start()
		f.park(nil, "1 k x/a")
		f.settle()
		f.line.said()
		f.park(nil, "2 k x/a") // which the confirm of 1 leaves
		f.settle()
		f.refuse("delivered 1")
		f.line.release(0)
		f.settle()
		f.equal("said", f.heard(), "settled 2 sent 1 not now k@x")
	})
}

// A gate that opens once more while its rows are looked through has them looked through again: some
// met it shut.
func TestGateOpensDuringItsSweep(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		var specs []string
		for i := range 3 * pageRows {
			specs = append(specs, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.park(nil, specs...)
		f.settle()
		f.line.mend("x/a")
		shut, opened := false, false
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				switch {
				case call == "runs" && !shut: // of the first page
					shut = true
					f.line.set(func() { f.line.paused[gate{placeOf("x/a").Unit, placeOf("x/a").Dest}] = true })
					f.pass(2 * time.Second) // so that requests are due before the next page is
				case call == "requests" && shut && !opened:
					opened = true
					f.openGates()
				}
				return nil, false
			}
		})
		f.openGates()
		f.pass(time.Minute)
		if n := len(strings.Fields(f.table())); n > 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}
