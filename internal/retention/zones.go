// The memory of what a pass has seen: which parts of a leaf are worth looking at, and from when on.
// Pure: no I/O, no clock.

package retention

import (
	"cmp"
	"slices"
	"time"
)

// A leaf is read in zones of blocks. A zone is looked at again when a row in it may have come of
// age and may be settled: so a table that keeps rows for three days is read about once in three
// days, and one in which nothing happens is not read at all.
const (
	stepBlocks = 1024      // that one statement looks at: 8 MiB
	maxZones   = 16 * 1024 // of a leaf; above it zones become larger
)

// passEvery is the time from the end of a pass to the beginning of the next one: short next to the
// age of what is deleted, so that the tables hold little more than they have to.
func passEvery(keep time.Duration) time.Duration {
	return min(max(keep/20, 5*time.Second), time.Hour)
}

// zone is what is known of some blocks.
type zone struct {
	// From when on a look may find a row that is old enough: the first time at which a row that was
	// there comes of age, and the age after the last look at the latest, for rows written since. By
	// the relay's own clock, which is used for nothing else.
	due time.Time
	// A look is of use only when all is settled up to above this transaction: what was settled at
	// the last look, when no row of that was left. 0: it is of use anyway.
	above int64
	// No row was left that a look could find later. So until somebody writes to the leaf a look is
	// of no use: while its counter is this. The server may lose counts, so not for ever. -1: it is
	// of use anyway.
	writes int64
	sure   time.Time

	failed bool      // the last look, or deleting what it has found
	late   time.Time // since when an old row that is not settled waits; zero: none was there
}

// worth reports whether a zone is worth a look.
func (z zone) worth(now time.Time, settled, writes int64) bool {
	return !now.Before(z.due) && settled > z.above && (z.writes != writes || !now.Before(z.sure))
}

// sureFor is how long the server's counter of writes is trusted.
const sureFor = time.Hour

// leaf is a table that has rows: an outbox table, or a partition of one.
type leaf struct {
	oid, file uint32 // file: another one has other blocks
	name      string // quoted
	of        int    // the table in Config.Tables

	settled    int64 // up to where all rows are, as of the beginning of the pass
	writes     int64 // rows that were inserted or updated, as the server counts them
	blocks     int64
	zoneBlocks int64
	zones      []zone
}

// resize adapts the zones to the blocks that there are now. New ones are worth a look at once.
func (l *leaf) resize(file uint32, blocks int64, now time.Time) {
	if l.file != file {
		l.file, l.zones = file, nil
	}
	l.blocks = blocks
	size := int64(stepBlocks)
	for (blocks+size-1)/size > maxZones {
		size *= 2
	}
	if size > l.zoneBlocks { // smaller ones would not help: what is known is of the larger ones
		l.zoneBlocks, l.zones = size, nil
	}
	n := int((blocks + l.zoneBlocks - 1) / l.zoneBlocks)
	if n < len(l.zones) {
		l.zones = l.zones[:n]
	}
	for len(l.zones) < n {
		l.zones = append(l.zones, zone{due: now, writes: -1})
	}
}

// bounds are the blocks of a zone, the second not included.
func (l *leaf) bounds(i int) (from, to int64) {
	from = int64(i) * l.zoneBlocks
	return from, min(from+l.zoneBlocks, l.blocks)
}

// dueZone is a zone of a leaf that is worth a look.
type dueZone struct {
	*leaf
	number int // of the zone, among those of the leaf
	due    time.Time
	failed int // 1: it has
}

// dueZones lists the zones that are worth a look, those first that have waited for longest. Those
// in which something has failed come last: they keep no others.
func dueZones(leaves map[uint32]*leaf, now time.Time) (list []dueZone) {
	for _, l := range leaves {
		for i, z := range l.zones {
			if z.worth(now, l.settled, l.writes) {
				d := dueZone{leaf: l, number: i, due: z.due}
				if z.failed {
					d.failed = 1
				}
				list = append(list, d)
			}
		}
	}
	slices.SortFunc(list, func(a, b dueZone) int {
		return cmp.Or(a.failed-b.failed, cmp.Compare(a.due.Unix(), b.due.Unix()), cmp.Compare(a.oid, b.oid), cmp.Compare(a.number, b.number))
	})
	return list
}

// findings count the rows that looks at the blocks of a zone have found.
type findings struct {
	rows, ripe int64    // all; those that may be deleted
	held       int64    // they wait for an operator, for their retry, or for who has locked them
	above      int64    // not settled
	late       int64    // of above, those that are old enough
	young      int64    // settled and not old enough
	next       *float64 // in how many seconds the first row comes of age; nil: not known
	waits      *float64 // for how many seconds the oldest of late is old enough; nil: not known
	settled    int64    // up to where all is settled, at the first look
}

// add adds what was found in later blocks of the zone.
func (s *findings) add(o findings) {
	if s.rows == 0 && s.settled == 0 {
		s.settled = o.settled
	}
	s.rows, s.ripe, s.held, s.above, s.late, s.young = s.rows+o.rows, s.ripe+o.ripe, s.held+o.held, s.above+o.above, s.late+o.late, s.young+o.young
	if o.next != nil && (s.next == nil || *o.next < *s.next) {
		s.next = o.next
	}
	if o.waits != nil && (s.waits == nil || *o.waits > *s.waits) {
		s.waits = o.waits
	}
}

// nextLook says when the zone is worth the next look. The last one began at a time when the leaf's
// counter was writes. again is after how long rows that are held are looked at again.
//
// A row that is written after the look comes of age keep after it at the earliest, unless its time
// column says that it is older: then it is found a little later. Its transaction is not below what
// was settled at the look, since all of those had ended. So if no settled row is left, the next
// look waits until more is settled.
func (s *findings) nextLook(began time.Time, writes int64, keep, again time.Duration) zone {
	z := zone{due: began.Add(keep), writes: -1, sure: began.Add(sureFor)}
	if s.held > 0 || s.late > 0 {
		z.due = began.Add(again)
	}
	if s.next != nil {
		if first := began.Add(time.Duration(*s.next * float64(time.Second))); first.Before(z.due) {
			z.due = first
		}
	}
	if s.late > 0 {
		z.late = began
		if s.waits != nil {
			z.late = began.Add(-time.Duration(*s.waits * float64(time.Second)))
		}
	}
	switch {
	case s.held > 0 || s.young > 0:
		return z
	case s.late > 0:
		z.due = began
	case s.above == 0:
		z.writes = writes
	}
	z.above = s.settled
	return z
}
