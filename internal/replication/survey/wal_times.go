// When the WAL was at which position: it tells how many seconds another program's slot is behind,
// whose commits we do not see.

package survey

import (
	"math"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pglogrepl"
)

// walTimes keeps at most maxWALTimes entries and thins out old ones, so it covers the whole time
// since it began.
type walTimes struct {
	segment uint64    // size in bytes of a file of WAL
	seen    []walTime // the oldest first, by time and by position
}

type walTime struct {
	at  time.Time
	lsn pglogrepl.LSN
}

const maxWALTimes = 1024

// add records that the WAL is at lsn. A lower position, of another timeline, clears the record.
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

// thin removes the entry whose removal leaves the smallest gap relative to its age. So the gaps
// grow with age.
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

// passed returns when WAL after lsn was first seen, zero for never. It is late by up to the time
// between two entries, for old ones a few percent of their age, and never before the first entry.
func (w *walTimes) passed(lsn pglogrepl.LSN) time.Time {
	for _, s := range w.seen {
		if source.WALBeyond(w.segment, lsn, s.lsn) {
			return s.at
		}
	}
	return time.Time{}
}
