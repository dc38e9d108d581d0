// Counters with labels, for the path of each event.

package metrics

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// labels are the values of one label, and of a second one where a vector has two.
type labels [2]string

// counters finds the children of a vector by their labels without a lock and without allocating.
// The labels must be of a closed list: what was seen once is kept.
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
