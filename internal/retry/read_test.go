package retry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// Each want is answered: with the rows behind the one it names, in order, or with the news that
// there are none.
func TestEachWantIsAnswered(t *testing.T) {
	for _, block := range []bool{false, true} {
		t.Run(fmt.Sprint("block=", block), func(t *testing.T) {
			inBubble(t, Config{Block: block}, func(f *fixture) {
				f.start()
				f.deferRows(nil, "1 k1 x/a", "2 k1 x/b", "3 k1 x/a", "4 j2 x/a", "5 - y/a")
				f.deferRows(permanent, "6 i x/a")
				f.settle()
				f.line.said()
				f.read("k1@x", "1")
				f.read("j2@x")
				f.read("none@x")
				f.read("i@x")
				f.settle()
				none := map[bool]string{false: "found i@x", true: "found i@x blocked"}[block]
				f.saidInAnyOrder("found k1@x 2 3", "found j2@x 4", "found none@x", none)
				e := f.line.rows["2"]
				if lane := f.line.lanes["2"]; lane != 1 || e.Place.Lane != 1 || e.Group == 0 || e.Row.N == 0 || !e.IsRow() || e.Place.Dest != placeOf("x/b").Dest {
					t.Errorf("lane %d got %+v", lane, e)
				}
				if n := f.table.Snapshot().InFlight; n != 3 {
					t.Errorf("%d rows in flight", n)
				}
			})
		})
	}
}

// Rows whose place is not known now are left out, with those behind them.
func TestRowWithoutAPlace(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.sink.forget("y")
		f.deferRows(nil, "1 k x/a")
		moved := f.eventOf("2 k x/a", nil)
		moved.Route = &event.Route{Name: []byte("y")}
		f.table.Defer([]*inflight.Event{moved})
		f.deferRows(nil, "3 k x/a")
		f.gets("k@x", "1 more")
		f.line.finish("delivered", "1")
		f.gets("k@x", "failed")
		f.sink.forget("")
		f.gets("k@x", "2 3")
	})
}

// A row that cannot be read blocks what is behind it in its ordering group, and nothing else.
func TestRowThatCannotBeRead(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.store.torn = map[string]bool{"000": true, "333": true}
		var specs []string
		for i := range 400 {
			specs = append(specs, fmt.Sprintf("%03d k%d x/a", i, i))
		}
		f.deferRows(nil, "before k333 x/a")
		f.deferRows(nil, append(specs, "behind k333 x/a")...)
		f.settle()
		f.store.done("")
		for i := range 400 {
			f.read(fmt.Sprintf("k%d@x", i))
		}
		f.pass(time.Second)
		log := f.line.said()
		if !strings.Contains(log, "found k0@x failed\n") || !strings.Contains(log, "found k333@x before more\n") || strings.Count(log, "\nfound") < 399 || f.line.has() != 399 {
			t.Errorf("log:\n%s", log)
		}
		if n := f.store.count("read"); n > 60 {
			t.Errorf("%d reads", n)
		}
	})
}

// While statements that read fail, results are committed all the same, and in the end the want is
// answered.
func TestReadThatFailsIsMadeAgain(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(nil, "1 k x/a", "2 j x/a")
		f.gets("k@x", "1")
		f.store.fails("read", errLost, false)
		f.read("j@x")
		f.settle()
		f.line.finish("delivered", "1")
		f.pass(time.Minute)
		f.said("finished 1")
		if n := f.store.count("read"); n > 30 {
			t.Errorf("%d reads in a minute", n)
		}
		f.store.accept()
		f.pass(maxPause)
		f.said("found j@x 2")
	})
}

// A probe is one row.
func TestProbeIsOneRow(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(nil, "1 k x/a", "2 k x/a")
		f.settle()
		f.line.said()
		_, w := f.wantOf("k@x")
		w.Probe = true
		f.table.Read(0, []order.Want{w}, nil)
		f.settle()
		f.said("found k@x 1 more")
	})
}

// At a stop nothing is read any more, and requests wait for the next leader.
func TestStopFeeding(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(nil, "1 k x/a", "2 j x/a")
		f.settle()
		f.line.said()
		f.table.StopFeeding()
		f.read("k@x")
		f.walk("x")
		id := f.ask(store.DeadLetter, "2")
		f.pass(time.Minute)
		f.said("")
		f.equal("asked", f.asked(id), "waiting")
	})
}
