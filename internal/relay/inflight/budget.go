// The in-flight budget: it bounds events and bytes in the line.

package inflight

import "sync"

// Budget bounds what is in the line, by events and by the bytes of the chunks they are in. It owns
// the pools of items and chunks.
type Budget struct {
	mu      sync.Mutex
	limit   int // events
	events  int
	bytes   int64 // of the events themselves
	chunks  chunks
	free    *Event
	waiting bool          // the reader waits for room
	room    chan struct{} // cap 1: room was made while it waited
	empty   chan struct{} // closed when events becomes 0; nil when no goroutine waits
}

// NewBudget makes a budget of so many events, and so many bytes of chunks.
func NewBudget(events int, bytes int64) *Budget {
	return &Budget{limit: events, chunks: newChunks(bytes), room: make(chan struct{}, 1)}
}

// Admit takes in an event of size bytes for a's lane. It returns an empty item and the buffer for
// the event's bytes. It returns nil when the in-flight budget is full: the reader then waits for
// room and calls admit again.
func (b *Budget) Admit(a *Arena, size int) (*Event, []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.events >= b.limit {
		b.waiting = true
		return nil, nil
	}
	c, buf, ok := b.chunks.place(a, size)
	if !ok {
		b.waiting = true
		return nil, nil
	}
	it := b.free
	if it == nil {
		it = new(Event)
	} else {
		b.free = it.Next
	}
	it.chunk, it.Size, it.Next = c, size, nil
	b.events++
	b.bytes += int64(size)
	return it, buf
}

// Release takes back settled items and the memory of their bytes.
func (b *Budget) Release(items []*Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, it := range items {
		b.bytes -= int64(it.Size)
		if it.chunk != nil {
			b.chunks.drop(it.chunk)
		}
		it.clear()
		it.Next = b.free
		b.free = it
	}
	b.events -= len(items)
	if b.waiting {
		b.waiting = false
		select {
		case b.room <- struct{}{}:
		default:
		}
	}
	if b.events == 0 && b.empty != nil {
		close(b.empty)
		b.empty = nil
	}
}

// WhenEmpty returns a channel that is closed once no event is inside.
func (b *Budget) WhenEmpty() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.empty == nil {
		b.empty = make(chan struct{})
	}
	c := b.empty
	if b.events == 0 {
		close(b.empty)
		b.empty = nil
	}
	return c
}

// Size returns what is in the line: events and their bytes.
func (b *Budget) Size() (events int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events, b.bytes
}

// Room delivers after room was made while the reader waited for it.
func (b *Budget) Room() <-chan struct{} { return b.room }
