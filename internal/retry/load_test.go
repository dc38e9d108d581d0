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

// A new leader counts what the former one left, with dead letters that block.
func TestLoad(t *testing.T) {
	for _, hold := range []bool{false, true} {
		t.Run(fmt.Sprint("hold=", hold), func(t *testing.T) {
			inBubble(t, Config{Block: hold}, func(f *fixture) {
				f.line.shut("x")
				f.start()
				f.deferRow(nil, "1 k x/a", "2 k x/b", "3 j x/a", "4 - x/a")
				f.deferRow(permanent, "5 k x/a")
				f.settle()
				f.stop()
				f.succeed(Config{Block: hold})
				f.line.shut("x")
				f.start()
				got := map[string]int{}
				for group, n := range f.line.counts {
					got[f.line.nameOf(group)] = n
				}
				if want := map[bool]int{false: 2, true: 3}[hold]; got["k@x"] != want || got["j@x"] != 1 || len(got) != 2 {
					t.Errorf("counts %v", got)
				}
			})
		})
	}
}

// Load returns an error when it is fenced, and when its statement fails.
func TestLoadFails(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.db.Lead(slot)
		var stop *event.Stop
		if err := f.s.Load(f.t.Context(), f.line); !errors.As(err, &stop) || stop.Reason != "fenced" {
			t.Errorf("fenced: %v", err)
		}
		f.succeed(Config{})
		f.store.fault = func(string) (error, bool) { return errLost, false }
		if err := f.s.Load(f.t.Context(), f.line); !errors.Is(err, errLost) || errors.As(err, &stop) {
			t.Errorf("lost: %v", err)
		}
	})
}

// Counting may take as long as it goes on; a broker that says nothing of one event ends it.
func TestLoadIsPatient(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		f.deferRow(nil, "1 i x/a", "2 j x/a", "3 k x/a")
		f.settle()
		f.stop()
		f.succeed(Config{})
		if err := f.s.Load(f.t.Context(), slowLine{f.line, loadPatience - time.Second}); err != nil {
			t.Errorf("slow: %v", err)
		}
		f.succeed(Config{})
		if err := f.s.Load(f.t.Context(), slowLine{f.line, loadPatience + time.Second}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("silent: %v", err)
		}
	})
}

// slowLine takes so long to learn where an event belongs.
type slowLine struct {
	*fakeLine
	wait time.Duration
}

func (l slowLine) Load(ctx context.Context, ev *event.Event, rows int) error {
	if !sleep(ctx, l.wait) {
		return ctx.Err()
	}
	return l.fakeLine.Load(ctx, ev, rows)
}

// What the stream repeats of what is in the tables is known, and nothing else, not even another
// event at such a position; the database is asked once for many.
func TestKnown(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		var specs []string
		for i := range 2500 {
			specs = append(specs, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.deferRow(nil, specs...)
		f.deferRow(permanent, "dead k x/a")
		f.settle()
		f.stop()
		f.succeed(Config{})
		f.line.shut("x")
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
		f.store.done()
		found := 0
		eventAt := func(lsn pglogrepl.LSN) *event.Event {
			ev := &event.Event{Position: event.Position{Commit: lsn}, ID: fmt.Appendf(nil, "%04d", int(lsn-100)/16-1)}
			if lsn == 100+2501*16 {
				ev.ID = []byte("dead")
			}
			return ev
		}
		for lsn := pglogrepl.LSN(4); lsn < 100+2510*16; lsn += 8 {
			known, err := f.s.Known(f.t.Context(), eventAt(lsn))
			want := lsn > 100 && lsn <= 100+2501*16 && (lsn-100)%16 == 0
			if known {
				found++
			}
			if err != nil || known != want {
				t.Fatalf("%d: %v, %v, want %v", lsn, known, err, want)
			}
			other := eventAt(lsn)
			other.ID = append(other.ID, 'x')
			if known, err := f.s.Known(f.t.Context(), other); err != nil || known {
				t.Fatalf("%d: another event: %v, %v", lsn, known, err)
			}
		}
		if asked := f.store.count("positions"); asked != 6 || found != 2501 {
			t.Errorf("asked %d times, found %d", asked, found)
		}
		// The last transaction comes once more after the reader was past it: its session ended
		// before an event of it was admitted.
		if known, _ := f.s.Known(f.t.Context(), eventAt(100+2501*16)); !known {
			t.Error("the last is not known any more")
		}
		// So does one of which several were known: it begins again with a lower position.
		if known, _ := f.s.Known(f.t.Context(), eventAt(100+16)); !known {
			t.Error("the first is not known any more")
		}
	})
}

// It waits for the database as long as it may.
func TestKnownWaits(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		f.deferRow(nil, "1 k x/a")
		f.settle()
		f.stop()
		f.succeed(Config{})
		f.line.shut("x")
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
		if _, err := f.s.Known(ctx, &event.Event{Position: event.Position{Commit: 1}}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
