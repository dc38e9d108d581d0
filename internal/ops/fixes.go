// What an operator runs about a slot, which keeps WAL until the disk is full if nobody reads it,
// and about a paused destination. Status and console print the commands.

package ops

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// fix returns what an operator does about a slot whose WAL is lost or soon will be. "" means that
// nothing is to be done, or that it is not known what.
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

// dangerWithin is how long before its WAL is lost a slot that nobody reads gets a fix.
const dangerWithin = 24 * time.Hour

// quoteSQL writes a text as an SQL literal.
func quoteSQL(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// Courses has a Course for each slot of a server. The zero value is ready. It is safe for
// concurrent use.
type Courses struct {
	mu sync.Mutex
	of map[string]*Course // by the slots' names
}

// SeeSlots takes the last reading of all slots, fills in their forecasts, and forgets slots that
// are not among them.
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

// destinationTitle matches the titles that sinks give to destinations.
var destinationTitle = lazy.Regexp(`^(?:exchange|topic) ("(?:[^"\\]|\\.)*")(?:, routing key ("(?:[^"\\]|\\.)*"))?$`)

// RetryName returns the destination in the form that `deferred retry` takes. It returns "" for a
// destination without a name, and for one with a placeholder, which stands for many.
func (p *Paused) RetryName() string {
	found := destinationTitle().FindStringSubmatch(p.Destination)
	if found == nil {
		return ""
	}
	name, err := strconv.Unquote(found[1])
	if err != nil || name == "" {
		return ""
	}
	if found[2] != "" {
		key, err := strconv.Unquote(found[2])
		if err != nil {
			return ""
		}
		name += "/" + key
	}
	if strings.Contains(name, "{") {
		return ""
	}
	return name
}
