package ops

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counters finds the children of a vector by their one label without a lock and without allocating. The labels must be a
// closed list: what was seen once is kept.
type counters struct {
	vector *prometheus.CounterVec
	mu     sync.Mutex // of writers of known
	known  atomic.Pointer[map[string]prometheus.Counter]
}

// newCounters has the children of labels from the start, at 0; those of others come with their first increment.
func newCounters(vector *prometheus.CounterVec, labels ...string) *counters {
	c := &counters{vector: vector}
	known := make(map[string]prometheus.Counter, len(labels))
	for _, label := range labels {
		known[label] = vector.WithLabelValues(label)
	}
	c.known.Store(&known)
	return c
}

func (c *counters) inc(label string) {
	counter, ok := (*c.known.Load())[label]
	if !ok {
		counter = c.learn(label)
	}
	counter.Inc()
}

func (c *counters) learn(label string) prometheus.Counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := *c.known.Load()
	after := make(map[string]prometheus.Counter, len(before)+1)
	for l, counter := range before {
		after[l] = counter
	}
	after[label] = c.vector.WithLabelValues(label)
	c.known.Store(&after)
	return after[label]
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
