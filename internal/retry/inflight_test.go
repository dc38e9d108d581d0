package retry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Ordering groups in flight are left alone by whatever else finds them, and read afterwards.

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

// endPauses ends all pauses, whether the destinations accept or not.
func (f *fixture) endPauses() {
	f.line.set(func() { clear(f.line.paused) })
	signal(f.line.changed)
}

// A destination is not probed with an ordering group whose results are not committed: its first row
// was perhaps delivered.
func TestNoProbeOfAGroupInFlight(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.deferRow(nil, "1 k x/a", "2 k x/a")
		f.settle()
		f.line.fix("x/a")
		f.answers(map[string]*sink.Fault{"2": itsRoute})
		f.refuse("delivered 1")
		f.endPauses()
		f.pass(20 * time.Second) // the destination that 2 has paused is due to be probed
		f.equal("table", f.table(), "1 2")
		f.accept()
		f.answers(nil)
		f.pass(30 * time.Second)
		f.equal("table", f.table(), "")
		f.equal("sent", f.line.sentIDs(), "1 2")
	})
}

// It is probed with another: the results of the first are perhaps refused for ever.
func TestProbeBesideAGroupInFlight(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.deferRow(nil, "1 k x/b", "2 k x/a")
		f.answers(map[string]*sink.Fault{"2": itsRoute})
		f.refuse("delivered 1")
		f.endPauses()
		f.settle() // 2 has paused its destination
		f.deferRow(nil, "3 j x/a")
		f.settle()
		f.equal("table", f.table(), "1 2 3")
		f.line.fix("x/a")
		f.pass(time.Minute)
		f.equal("table", f.table(), "1 2")
	})
}

// A row that becomes too old while it is with a lane is what the lane says it is.
func TestNoAgeOfAGroupInFlight(t *testing.T) {
	inBubble(t, Config{DestinationMaxAge: time.Hour}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.deferRow(itsRoute, "1 k x/a", "2 k x/a")
		f.pass(59 * time.Minute)
		f.line.fix("x/a")
		f.line.set(func() { f.line.keep = true })
		f.pass(10 * time.Minute)
		f.equal("dead_letters", f.deadLetters(), "")
		f.line.set(func() { f.line.keep = false })
		f.line.release(0) // the probe
		f.pass(time.Second)
		f.equal("table", f.table(), "")
		f.equal("sent", f.line.sentIDs(), "1 2")
	})
}

// An ordering group that a sweep meets in flight is read when its results are committed: no other
// sweep comes for it.
func TestSweepMeetsAGroupInFlight(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.line.shut("x/b")
		f.start()
		f.deferRow(itsRoute, "0 j x/a", "1 k x/b", "2 k x/a")
		f.settle()
		f.line.fix("x/b")
		f.refuse("delivered 1")
		f.endPauses() // 0 and 2 are refused, and pause x/a again
		f.settle()
		f.line.fix("x/a")
		f.endPauses()
		f.settle()
		f.equal("table", f.table(), "1 2")
		f.accept()
		f.pass(10 * time.Second)
		f.equal("table", f.table(), "")
		f.equal("sent", f.line.sentIDs(), "1 0 2")
	})
}

// While the results of a run are refused nothing of its ordering group may go, and its lane must
// not keep new events in memory for it.
func TestNotNowOfARefusedEnd(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.set(func() { f.line.keep = true })
		f.start()
		f.deferRow(nil, "1 k x/a")
		f.settle()
		f.line.said()
		f.deferRow(nil, "2 k x/a") // which the confirm of 1 leaves
		f.settle()
		f.refuse("delivered 1")
		f.line.release(0)
		f.settle()
		f.equal("said", f.heard(), "settled 2 sent 1 not now k@x")
	})
}

// When a pause ends once more while a sweep reads its rows, they are read again: some were skipped
// as paused.
func TestPausedDestOpensDuringItsSweep(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		var specs []string
		for i := range 3 * pageRows {
			specs = append(specs, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.deferRow(nil, specs...)
		f.settle()
		f.line.fix("x/a")
		shut, opened := false, false
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				switch {
				case call == "runs" && !shut: // of the first page
					shut = true
					f.line.set(func() { f.line.paused[target{placeOf("x/a").ExchangeOrTopic, placeOf("x/a").Dest}] = true })
					f.pass(2 * time.Second) // so that requests are due before the next page is
				case call == "requests" && shut && !opened:
					opened = true
					f.endPauses()
				}
				return nil, false
			}
		})
		f.endPauses()
		f.pass(time.Minute)
		if n := len(strings.Fields(f.table())); n > 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}
