// The registry: what is paused.

package pauses

import (
	"cmp"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// New makes a registry.
func New(cfg Config) *Registry {
	if cfg.Jitter == nil {
		cfg.Jitter = func(time.Duration) time.Duration { return 0 }
	}
	return &Registry{cfg: cfg, paused: map[Target]*entry{}, resting: map[Target]int{}}
}

// Any reports whether anything is paused.
func (r *Registry) Any() bool { return r.count.Load() > 0 }

// Hold says that the disk guard is on, or off: while it is on nothing goes anywhere.
func (r *Registry) Hold(on bool) { r.held.Store(on) }

// Held reports whether the disk guard is on: then it is of no use to look for rows that may go.
func (r *Registry) Held() bool { return r.held.Load() }

// Version changes with each pause that ends.
func (r *Registry) Version() uint64 { return r.version.Load() }

// Paused reports whether the place, or its whole exchange or topic, is paused.
func (r *Registry) Paused(p sink.Place) bool {
	_, is := r.Target(p)
	return is
}

// Target is what of a place is paused.
func (r *Registry) Target(p sink.Place) (t Target, is bool) {
	if !r.Any() {
		return Target{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t, e := r.of(p)
	return t, e != nil
}

func (r *Registry) of(p sink.Place) (Target, *entry) {
	dest := Target{p.ExchangeOrTopic, p.Dest}
	if e := r.paused[dest.whole()]; e != nil {
		return dest.whole(), e
	}
	return dest, r.paused[dest]
}

// IsPaused reports whether a target is paused.
func (r *Registry) IsPaused(t Target) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.paused[t] != nil
}

// Fault is the last rejection of the paused place; nil: it is not paused.
func (r *Registry) Fault(p sink.Place) *sink.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, e := r.of(p); e != nil {
		return e.fault
	}
	return nil
}

// List is what is paused, the longest first.
func (r *Registry) List() []sink.Paused {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]sink.Paused, 0, len(r.paused))
	for _, e := range r.paused {
		out = append(out, e.Paused)
	}
	slices.SortFunc(out, func(a, b sink.Paused) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Destination, b.Destination))
	})
	return out
}

// covered reports whether the whole exchange or topic of a destination is paused: probes find out
// about that first.
func (r *Registry) covered(t Target) bool { return t.Dest != 0 && r.paused[t.whole()] != nil }

func (t Target) whole() Target { return Target{ExchangeOrTopic: t.ExchangeOrTopic} }
