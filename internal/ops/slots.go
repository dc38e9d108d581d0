// What the slots of a server need.

package ops

import (
	"strings"
	"sync"
	"time"
)

// fix is what an operator does about a slot whose WAL is lost or soon will be; "": nothing.
func (s *SlotItem) fix() string {
	drop := "SELECT pg_drop_replication_slot(" + quoteSQL(s.Name) + ")"
	switch {
	case s.WALStatus == "lost" && s.Own:
		return "cdc-relay recover"
	case s.WALStatus == "lost":
		return drop
	case s.Active || s.Own || s.SafeWALSeconds == nil || *s.SafeWALSeconds > dangerWithin.Seconds():
		return ""
	}
	return "start the program that reads it, or, if nobody needs it: " + drop
}

// dangerWithin is how soon a slot that nobody reads needs somebody.
const dangerWithin = 24 * time.Hour

// quoteSQL is a text as a literal.
func quoteSQL(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// Courses are the courses of the slots of a server. Its zero value has seen nothing. It is safe for
// concurrent use.
type Courses struct {
	mu sync.Mutex
	of map[string]*Course // by the slot's name
}

// SeeSlots takes the slots as they were read last, fills in their forecasts, and forgets others.
func (c *Courses) SeeSlots(slots []Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.of
	c.of = make(map[string]*Course, len(slots))
	for i := range slots {
		s := &slots[i]
		course := before[s.Name]
		if course == nil {
			course = &Course{}
		}
		c.of[s.Name] = course
		s.LeftSeconds = course.SeeSlot(s.Checked, s.SafeWALBytes)
	}
}
