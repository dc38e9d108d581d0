package survey

import (
	"math"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pglogrepl"
)

// walTimes remembers when the server's WAL was seen where, so that a slot of another program, of
// whose commits nobody tells us, can be told in seconds. It has maxWALTimes sightings: what is old
// is thinned out, so it goes back as far as it was kept.
type walTimes struct {
	segment uint64    // size in bytes of a file of WAL
	seen    []walTime // the oldest first, by time and by position
}

type walTime struct {
	at  time.Time
	lsn pglogrepl.LSN
}

const (
	maxWALTimes = 1024
)

// add notes that the WAL is at lsn. One that goes back, of another timeline, begins again.
func (w *walTimes) add(at time.Time, lsn pglogrepl.LSN) {
	if n := len(w.seen); n > 0 {
		last := w.seen[n-1].lsn
		if lsn == last {
			return
		}
		if lsn < last {
			w.seen = w.seen[:0]
		}
	}
	if len(w.seen) == maxWALTimes {
		w.thin(at)
	}
	w.seen = append(w.seen, walTime{at, lsn})
}

// thin forgets the sighting that is missed least: it leaves the gap that is the smallest beside its
// age. So the gaps grow with the age, whatever that is.
func (w *walTimes) thin(now time.Time) {
	least, at := math.Inf(1), 1
	for i := 1; i < len(w.seen)-1; i++ {
		gap := w.seen[i+1].at.Sub(w.seen[i-1].at).Seconds() / now.Sub(w.seen[i].at).Seconds()
		if gap < least {
			least, at = gap, i
		}
	}
	w.seen = slices.Delete(w.seen, at, at+1)
}

// passed is when WAL after lsn was seen first, zero for never. It is late by the time between two
// sightings, of what is long ago by some hundredths of its age, and never before the first
// sighting.
func (w *walTimes) passed(lsn pglogrepl.LSN) time.Time {
	for _, s := range w.seen {
		if source.WALBeyond(w.segment, lsn, s.lsn) {
			return s.at
		}
	}
	return time.Time{}
}
