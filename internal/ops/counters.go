package ops

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// labels are the values of one label, and of a second one where a vector has two.
type labels [2]string

// counters finds the children of a vector by their labels without a lock and without allocating. The labels must be of a
// closed list: what was seen once is kept.
type counters struct {
	vector *prometheus.CounterVec
	count  int        // of labels
	mu     sync.Mutex // of writers of known
	known  atomic.Pointer[map[labels]prometheus.Counter]
}

func newCounters(name, help string, label ...string) *counters {
	c := &counters{count: len(label), vector: prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, label)}
	c.known.Store(&map[labels]prometheus.Counter{})
	return c
}

func (c *counters) inc(l labels) { c.child(l).Inc() }

func (c *counters) child(l labels) prometheus.Counter {
	if counter, ok := (*c.known.Load())[l]; ok {
		return counter
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	after := maps.Clone(*c.known.Load())
	after[l] = c.vector.WithLabelValues(l[:c.count]...)
	c.known.Store(&after)
	return after[l]
}

// rateSeconds is how many whole seconds a rate is taken over.
const rateSeconds = 10

// rate counts by second, so that a rate can be told without a goroutine that samples. The zero value is ready.
type rate struct {
	mu      sync.Mutex
	seconds [rateSeconds + 1]struct {
		unix int64
		n    uint64
	}
}

func (r *rate) add(at time.Time, n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	unix := at.Unix()
	slot := &r.seconds[unix%int64(len(r.seconds))]
	if slot.unix != unix {
		slot.unix, slot.n = unix, 0
	}
	slot.n += n
}

// perSecond is the mean of the last rateSeconds whole seconds before now.
func (r *rate) perSecond(now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sum uint64
	for _, slot := range r.seconds {
		if age := now.Unix() - slot.unix; age >= 1 && age <= rateSeconds {
			sum += slot.n
		}
	}
	return float64(sum) / rateSeconds
}
