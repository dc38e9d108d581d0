// Marks: no position was reported for an event that was nowhere.

package checker

import (
	"cmp"
	"slices"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// flushAhead applies the rule of Mark.
func (c *checking) flushAhead() {
	if len(c.h.Marks) == 0 {
		return
	}
	marks := slices.SortedFunc(slices.Values(c.h.Marks), func(a, b Mark) int { return cmp.Compare(a.After, b.After) })
	// For each partition the highest flush position among the marks before the event. They are
	// taken in order: a log's end only grows, and when its topic is re-created a mark too few is
	// used, never one too many.
	type passed struct {
		marks int
		flush pglogrepl.LSN
	}
	logs := map[kafkaserver.TopicPartition]*passed{}
	for i := range c.h.Deliveries {
		d := &c.h.Deliveries[i]
		if d.Aside {
			continue
		}
		log := logs[d.From]
		if log == nil {
			log = &passed{}
			logs[d.From] = log
		}
		for log.marks < len(marks) && marks[log.marks].After <= i && marks[log.marks].Ends[d.From] <= d.Offset {
			log.flush = max(log.flush, marks[log.marks].Flush)
			log.marks++
		}
		r := c.rows[d.ID]
		if r == nil || r.first != i || c.displaced(d) || d.Position.Commit == 0 || d.Position.Commit >= log.flush {
			continue
		}
		if r.missedBy(marks[:log.marks]) {
			c.v.FlushAheadOfDelivery = append(c.v.FlushAheadOfDelivery, d.ID)
		}
	}
	for _, committed := range c.h.Committed {
		r := c.rows[committed.ID]
		if r.first < 0 && len(r.stays) > 0 && r.missedBy(marks) {
			c.v.FlushAheadOfDelivery = append(c.v.FlushAheadOfDelivery, r.ID)
		}
	}
}

// missedBy reports whether one of the marks, all from before the row arrived, is past the row while
// it was in no table.
func (r *row) missedBy(marks []Mark) bool {
	return slices.ContainsFunc(marks, func(m Mark) bool {
		if r.position.Commit >= m.Flush {
			return false
		}
		return m.Snapshot == nil || !slices.ContainsFunc(r.stays, m.Snapshot.Has)
	})
}
