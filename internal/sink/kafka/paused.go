// The destinations that refuse, for metrics and status.

package kafka

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// maxPaused bounds the destinations that are shown.
const maxPaused = 1000

// Paused is a destination that refused what was sent last, or could not be sent to.
type Paused struct {
	Destination string
	Reason      sink.Reason
	Words       string
	Since       time.Time
}

// paused are the destinations that refuse. Nothing is decided by it: the events of a refusing destination come again, and
// each time the broker is asked. A confirmed batch of a topic ends the pause of its partition, and of the topic.
type paused struct {
	count atomic.Int32 // zero spares the lanes the lock
	mu    sync.Mutex
	by    map[string]Paused
}

// refused takes up the destination of a fault.
func (p *paused) refused(fault *sink.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, known := p.by[fault.Destination]
	if !known && len(p.by) >= maxPaused {
		return
	}
	if p.by == nil {
		p.by = map[string]Paused{}
	}
	since := was.Since
	if !known {
		since = time.Now()
	}
	p.by[fault.Destination] = Paused{fault.Destination, fault.Reason, fault.Words, since}
	p.count.Store(int32(len(p.by)))
}

// confirmed ends the pause of the stream's partition and topic.
func (p *paused) confirmed(s *stream) {
	if p.count.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.by, topicName(s.topic))
	delete(p.by, partitionName(s.topic, s.partition))
	p.count.Store(int32(len(p.by)))
}

// list is what is paused, in order of the names.
func (p *paused) list() []Paused {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Paused, 0, len(p.by))
	for _, d := range p.by {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Paused) int { return strings.Compare(a.Destination, b.Destination) })
	return out
}
