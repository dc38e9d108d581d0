package replication

import (
	"math"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
)

// walTimes remembers when the server's WAL was seen where, so that a slot of another program, of whose commits nobody tells us,
// can be told in seconds. It has maxWALTimes sightings: what is old is thinned out, so it goes back as far as it was kept.
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
	// walNoise is more than what comes in bytes after the last commit of others, and then no more until the next: two lists of
	// the running transactions and a checkpoint, some 300 bytes, and as much for a raise of a relay's ceiling. So little is
	// nothing that anybody has to read.
	walNoise = 2 << 10
)

// add notes that the WAL is at lsn. One that goes back, of another timeline, begins anew.
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

// thin forgets the sighting that is missed least: it leaves the gap that is the smallest beside its age. So the gaps grow with the
// age, whatever that is.
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

// passed is when WAL after lsn was seen first, zero for never. It is late by the time between two sightings, of what is long
// ago by some hundredths of its age, and never before the first sighting.
func (w *walTimes) passed(lsn pglogrepl.LSN) time.Time {
	for _, s := range w.seen {
		if beyond(w.segment, lsn, s.lsn) {
			return s.at
		}
	}
	return time.Time{}
}

// beyond reports whether something was written between two positions that somebody may have to read. It is not the server's
// noise, nor the rest of a file that was left empty: with archive_timeout an idle server begins the next one, once. segment is the
// size in bytes of a file, 0 when it is not known.
func beyond(segment uint64, lsn, end pglogrepl.LSN) bool {
	if end <= lsn+walNoise {
		return false
	}
	if segment == 0 {
		return true
	}
	next := (uint64(lsn)/segment + 1) * segment
	return uint64(end) < next || uint64(end) > next+walNoise
}
