// The messages that a consumer has received, and waiting for them.

package consumers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// arrivals remember what a consumer has received, in order.
type arrivals struct {
	mu         sync.Mutex
	deliveries []checker.Delivery
	distinct   map[string]struct{} // ids
	copies     int                 // deliveries, not flagged redelivered, of an id that had arrived
	names      checker.Interned
	changed    chan struct{} // closed and replaced when anything here changes
	connected  bool
}

func newArrivals() arrivals {
	return arrivals{distinct: map[string]struct{}{}, names: checker.Interned{}, changed: make(chan struct{})}
}

// add remembers a delivery; a.mu is locked, and the caller notifies.
func (a *arrivals) add(d checker.Delivery) {
	_, known := a.distinct[d.ID]
	if known && !d.Redelivered {
		a.copies++
	}
	a.distinct[d.ID] = struct{}{}
	a.deliveries = append(a.deliveries, d)
}

// ParsePosition reads the text of a cdc_position.
func ParsePosition(text string) event.Position {
	p, err := event.ParsePosition(text)
	if err != nil {
		return event.Position{} // none, or not ours
	}
	return p
}

func (a *arrivals) setConnected(up bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connected = up
	a.notify()
}

// notify wakes whoever waits for a change; a.mu is locked.
func (a *arrivals) notify() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// Connected reports whether the consumer has a connection to the broker.
func (a *arrivals) Connected() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.connected
}

// Count is how many distinct ids have arrived, and how many deliveries were of an id that had
// arrived before. What the broker sent again for want of an acknowledgement, and says so, does not
// count as such.
func (a *arrivals) Count() (distinct, duplicates int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.distinct), a.copies
}

// Deliveries is a copy of all that has arrived, in order.
func (a *arrivals) Deliveries() []checker.Delivery { return a.DeliveriesFrom(0) }

// DeliveriesFrom is a copy of all that has arrived after the first n, in order.
func (a *arrivals) DeliveriesFrom(n int) []checker.Delivery {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.deliveries[n:])
}

// WaitCount returns when n distinct ids have arrived.
func (a *arrivals) WaitCount(ctx context.Context, n int) error {
	err := a.Wait(ctx, func() bool { return len(a.distinct) >= n })
	if err != nil {
		have, _ := a.Count()
		return fmt.Errorf("wait for %d messages, have %d: %w", n, have, err)
	}
	return nil
}

// WaitIDs returns when all of the ids have arrived.
func (a *arrivals) WaitIDs(ctx context.Context, ids []string) error {
	missing := slices.Clone(ids)
	err := a.Wait(ctx, func() bool {
		missing = slices.DeleteFunc(missing, func(id string) bool { _, ok := a.distinct[id]; return ok })
		return len(missing) == 0
	})
	if err != nil {
		return fmt.Errorf("wait for %d of %d messages (%s): %w", len(missing), len(ids), checker.FirstOf(missing), err)
	}
	return nil
}

// Wait returns when done, called with a.mu locked, says true. It gives up when nothing has arrived
// for a while.
func (a *arrivals) Wait(ctx context.Context, done func() bool) error {
	for {
		a.mu.Lock()
		ok, changed := done(), a.changed
		a.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(processes.Patience):
			return fmt.Errorf("nothing has arrived for %v", processes.Patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
