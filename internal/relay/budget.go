// The in-flight budget: it bounds events and bytes in the line.

package relay

import "sync"

// budget bounds what is in the line, by events and by the bytes of the chunks they are in. It owns
// the pools of items and chunks.
type budget struct {
	mu      sync.Mutex
	limit   int // events
	events  int
	bytes   int64 // of the events themselves
	chunks  chunks
	free    *item
	waiting bool          // the reader waits for room
	room    chan struct{} // cap 1: room was made while it waited
	empty   chan struct{} // closed when events becomes 0; nil when no goroutine waits
}

func newBudget(events int, bytes int64) *budget {
	return &budget{limit: events, chunks: newChunks(bytes), room: make(chan struct{}, 1)}
}

// admit takes in an event of size bytes for a's lane. It returns an empty item and the buffer for
// the event's bytes. It returns nil when the in-flight budget is full: the reader then waits for
// room and calls admit again.
func (b *budget) admit(a *arena, size int) (*item, []byte) {
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
		it = new(item)
	} else {
		b.free = it.next
	}
	it.chunk, it.size, it.next = c, size, nil
	b.events++
	b.bytes += int64(size)
	return it, buf
}

// release takes back settled items and the memory of their bytes.
func (b *budget) release(items []*item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, it := range items {
		b.bytes -= int64(it.size)
		if it.chunk != nil {
			b.chunks.drop(it.chunk)
		}
		it.clear()
		it.next = b.free
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

// whenEmpty returns a channel that is closed once no event is inside.
func (b *budget) whenEmpty() <-chan struct{} {
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

// size returns what is in the line: events and their bytes, and the memory charged for them.
func (b *budget) size() (events int, bytes, charged int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events, b.bytes, b.chunks.charged
}
