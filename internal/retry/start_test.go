package retry

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// What the stream repeats of what is in the tables is known, and nothing else, not even another
// event at such a position; the database is asked once for many.
func TestKnown(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		var specs []string
		for i := range 2500 {
			specs = append(specs, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.deferRows(nil, specs...)
		f.deferRows(permanent, "dead k x/a")
		f.settle()
		f.stop()
		f.succeed(Config{})
		n := 0
		f.store.fault = func(call string) (error, bool) {
			if call == "positions" {
				if n++; n >= 2 && n <= 4 {
					return errLost, false
				}
			}
			return nil, false
		}
		f.start()
		f.store.done("")
		found := 0
		eventAt := func(lsn pglogrepl.LSN) *event.Event {
			ev := &event.Event{Position: event.Position{Commit: lsn}, ID: fmt.Appendf(nil, "%04d", int(lsn-100)/16-1)}
			if lsn == 100+2501*16 {
				ev.ID = []byte("dead")
			}
			return ev
		}
		for lsn := pglogrepl.LSN(4); lsn < 100+2510*16; lsn += 8 {
			known, err := f.table.Known(f.t.Context(), eventAt(lsn))
			want := lsn > 100 && lsn <= 100+2501*16 && (lsn-100)%16 == 0
			if known {
				found++
			}
			if err != nil || known != want {
				t.Fatalf("%d: %v, %v, want %v", lsn, known, err, want)
			}
			other := eventAt(lsn)
			other.ID = append(other.ID, 'x')
			if known, err := f.table.Known(f.t.Context(), other); err != nil || known {
				t.Fatalf("%d: another event: %v, %v", lsn, known, err)
			}
		}
		if asked := f.store.count("positions"); asked != 6 || found != 2501 {
			t.Errorf("asked %d times, found %d", asked, found)
		}
		// The last transaction comes once more after the reader was past it: its session ended
		// before an event of it was admitted.
		if known, _ := f.table.Known(f.t.Context(), eventAt(100+2501*16)); !known {
			t.Error("the last is not known any more")
		}
		// So does one of which several were known: it begins again with a lower position.
		if known, _ := f.table.Known(f.t.Context(), eventAt(100+16)); !known {
			t.Error("the first is not known any more")
		}
	})
}

// It waits for the database as long as it may.
func TestKnownWaits(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(nil, "1 k x/a")
		f.settle()
		f.stop()
		f.succeed(Config{})
		f.start()
		f.store.fault = func(call string) (error, bool) {
			if call == "positions" {
				return errLost, false
			}
			return nil, false
		}
		ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if _, err := f.table.Known(ctx, &event.Event{Position: event.Position{Commit: 1}}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// A new leader holds the exchanges that an earlier one has found missing, whatever has become of
// them meanwhile, until an operator's retry is sent.
func TestStartHoldsMissingExchanges(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		for _, exchange := range []string{"x", "y"} {
			f.deferRows(itsExchange, exchange+"1 k1 "+exchange+"/a", exchange+"2 k1 "+exchange+"/b")
		}
		f.deferRows(itsRoute, "z1 k1 z/a")
		f.pass(time.Second)
		f.stop()
		f.succeed(Config{})
		f.start()
		paused := f.line.pauses.List()
		if len(paused) != 1 || paused[0].Fix != "bind" || paused[0].Destination != "there" || paused[0].Text != "NOT_FOUND" || !f.line.pauses.Paused(placeOf("x/c")) {
			t.Errorf("paused: %+v, want the exchange x, which was missing and is not bound by the relay", paused)
		}
	})
}
