// The destinations that refuse, for metrics and status.

package kafka

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
)

const (
	maxPaused = 1000 // bounds the destinations that are shown
	// shownFor is how long a destination without further events is shown: its events may have been
	// discarded.
	shownFor = time.Minute
)

// Paused is a destination that refused what was sent last, or could not be sent to.
type Paused struct {
	Destination string
	Reason      sink.Reason
	Text        string
	Since       time.Time
	last        time.Time // when it refused last
}

// paused are the destinations that refuse, for display only: their events come again, and the
// broker is asked each time. A confirmed batch ends the pause of its partition and of its topic.
type paused struct {
	count atomic.Int32 // at zero the lanes skip the lock
	mu    sync.Mutex
	by    map[refusal]Paused
}

// refusal is a partition that refuses, or with partition None the whole topic, by the topic's own
// name: several may be shown as one.
type refusal struct {
	topic     string
	partition int32
}

// refused records the destination of a fault: the partition, or the topic when the fault is Whole.
func (p *paused) refused(topic string, partition int32, fault *sink.Fault) {
	if fault.Whole {
		partition = client.None
	}
	at := refusal{topic, partition}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	was, known := p.by[at]
	if !known && len(p.by) >= maxPaused {
		return
	}
	since := was.Since
	if now.Sub(was.last) > shownFor {
		since = now
	}
	if p.by == nil {
		p.by = map[refusal]Paused{}
	}
	p.by[at] = Paused{fault.Destination, fault.Reason, fault.Text, since, now}
	p.count.Store(int32(len(p.by)))
}

// confirmed ends the pause of the producer's partition and topic.
func (p *paused) confirmed(pr *producer) {
	if p.count.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.by, refusal{pr.Topic, client.None})
	delete(p.by, refusal{pr.Topic, pr.Partition})
	p.count.Store(int32(len(p.by)))
}

// list returns what is paused, sorted by name.
func (p *paused) list() []Paused {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Paused, 0, len(p.by))
	for at, d := range p.by {
		if time.Since(d.last) > shownFor {
			delete(p.by, at)
			continue
		}
		out = append(out, d)
	}
	p.count.Store(int32(len(p.by)))
	slices.SortFunc(out, func(a, b Paused) int { return strings.Compare(a.Destination, b.Destination) })
	return out
}
