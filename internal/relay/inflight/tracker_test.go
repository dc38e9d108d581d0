package inflight

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// dumbTracker keeps everything that ever happened, and looks through all of it for each answer.
type dumbTracker struct {
	start pglogrepl.LSN
	stops []*dumbStop
}

// dumbStop is a transaction, or a position without events.
type dumbStop struct {
	lsn, end  pglogrepl.LSN
	closed    bool
	events    int
	unsettled int
}

func (d *dumbTracker) watermark() event.Watermark {
	w := event.Watermark{LSN: d.start}
	for _, s := range d.stops {
		if !s.closed || s.unsettled > 0 {
			break
		}
		w.LSN = max(w.LSN, s.end)
		if s.events > 0 {
			w.Own = s.end
		}
	}
	return w
}

func (d *dumbTracker) covered() (covered, settled uint64) {
	w := d.watermark()
	for _, s := range d.stops {
		settled += uint64(s.events - s.unsettled)
		if s.closed && s.end <= w.LSN {
			covered += uint64(s.events)
		}
	}
	return covered, settled
}

// TestTrackerAgainstDumb: whatever the order in which events settle, the watermark is the dumb
// one's after each step, and the list stays within the bound.
func TestTrackerAgainstDumb(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := pglogrepl.LSN(rapid.Uint64Range(0, 5).Draw(t, "start"))
		tr, dumb := NewTracker(start), &dumbTracker{start: start}
		type flying struct {
			it   *Event
			stop *dumbStop
		}
		var inFlight []flying
		var open *Commit
		var openStop *dumbStop
		lsn := start
		advance := func() pglogrepl.LSN {
			lsn += pglogrepl.LSN(rapid.Uint64Range(0, 3).Draw(t, "gap")) // 0: adjacent in WAL
			return lsn
		}
		t.Repeat(map[string]func(*rapid.T){
			"event": func(t *rapid.T) {
				if open == nil {
					openStop = &dumbStop{lsn: advance()}
					open = tr.Open(openStop.lsn, time.Time{})
					dumb.stops = append(dumb.stops, openStop)
				}
				openStop.events++
				openStop.unsettled++
				inFlight = append(inFlight, flying{&Event{commit: open}, openStop})
			},
			"close": func(t *rapid.T) {
				if open == nil {
					t.Skip("none is open")
				}
				lsn++
				openStop.end, openStop.closed = advance(), true
				tr.Close(open, lsn, openStop.events)
				open, openStop = nil, nil
			},
			"keepalive": func(t *rapid.T) {
				if open != nil {
					tr.Pass(lsn + 1000) // must be ignored: the transaction's own end is lower
					return
				}
				s := &dumbStop{lsn: lsn, end: advance(), closed: true}
				dumb.stops = append(dumb.stops, s)
				tr.Pass(s.end)
			},
			"settle": func(t *rapid.T) {
				if len(inFlight) == 0 {
					t.Skip("nothing in flight")
				}
				var batch []*Event
				for range rapid.IntRange(1, len(inFlight)).Draw(t, "batch") {
					i := rapid.IntRange(0, len(inFlight)-1).Draw(t, "which")
					f := inFlight[i]
					inFlight = append(inFlight[:i], inFlight[i+1:]...)
					f.stop.unsettled--
					batch = append(batch, f.it)
				}
				tr.Settle(batch)
			},
			"": func(t *rapid.T) {
				if got, want := tr.Watermark(), dumb.watermark(); got != want {
					t.Fatalf("watermark %+v, dumb says %+v", got, want)
				}
				if n := tr.length(); n > len(inFlight)+1 {
					t.Fatalf("%d commits in the list with %d unsettled events", n, len(inFlight))
				}
				covered, settled := dumb.covered()
				if tr.covered != covered || tr.settled != settled {
					t.Fatalf("covered %d of %d settled, dumb says %d of %d", tr.covered, tr.settled, covered, settled)
				}
			},
		})
	})
}

// TestTrackerRefusesToPassAnUnsettledCommit: moveWatermark is the last guard; asked for a position
// behind an unsettled commit it dies.
func TestTrackerRefusesToPassAnUnsettledCommit(t *testing.T) {
	tr := NewTracker(10)
	tr.Open(100, time.Time{})
	defer func() {
		if recover() == nil {
			t.Fatal("emit passed an unsettled commit")
		}
		if got := tr.Watermark().LSN; got != 10 {
			t.Fatalf("watermark %s after the refusal, want 0/A", got)
		}
	}()
	tr.moveWatermark(101, 101)
}

// TestTrackerListIsBounded: one stuck event at the head, and many transactions and keepalives
// behind it.
func TestTrackerListIsBounded(t *testing.T) {
	tr := NewTracker(0)
	stuck := &Event{commit: tr.Open(1, time.Time{})}
	tr.Close(stuck.commit, 2, 1)
	lsn := pglogrepl.LSN(2)
	for range 50_000 {
		it := &Event{commit: tr.Open(lsn, time.Time{})}
		lsn++
		tr.Close(it.commit, lsn, 1)
		tr.Settle([]*Event{it})
		tr.Pass(lsn)
		if n := tr.length(); n > 2 {
			t.Fatalf("%d commits in the list, one event is unsettled", n)
		}
	}
	if got := tr.Watermark(); got != (event.Watermark{}) {
		t.Fatalf("watermark %+v beside an unsettled event", got)
	}
	tr.Settle([]*Event{stuck})
	if got := tr.Watermark(); got != (event.Watermark{LSN: lsn, Own: lsn}) {
		t.Fatalf("watermark %+v, want %s", got, lsn)
	}
}

// length is how many commits are in the list.
func (t *Tracker) length() (n int) {
	for c := t.head; c != nil; c = c.next {
		n++
	}
	return n
}
