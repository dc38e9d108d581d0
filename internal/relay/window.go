// The bound of events and bytes in the line.

package relay

import "sync"

// window bounds what is inside the line, by events and by the bytes of the chunks they lie in. It
// owns the pools.
type budget struct {
	mu      sync.Mutex
	limit   int // events
	events  int
	bytes   int64 // of the events themselves
	chunks  chunks
	free    *item
	waiting bool          // the reader waits for room
	room    chan struct{} // cap 1: room was made while it waited
	empty   chan struct{} // closed when events becomes 0; nil when nobody waits for that
}

func newBudget(events int, bytes int64) *budget {
	return &budget{limit: events, chunks: newChunks(bytes), room: make(chan struct{}, 1)}
}

// admit takes in an event of size bytes for a's lane and returns an empty item and the buffer for
// its bytes. It returns nil when the in-flight budget is full; then the reader waits for room and
// asks again.
func (w *budget) admit(a *arena, size int) (*item, []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.events >= w.limit {
		w.waiting = true
		return nil, nil
	}
	c, buf, ok := w.chunks.place(a, size)
	if !ok {
		w.waiting = true
		return nil, nil
	}
	it := w.free
	if it == nil {
		it = new(item)
	} else {
		w.free = it.next
	}
	it.chunk, it.size, it.next = c, size, nil
	w.events++
	w.bytes += int64(size)
	return it, buf
}

// release takes back settled items with their bytes.
func (w *budget) release(items []*item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range items {
		w.bytes -= int64(it.size)
		if it.chunk != nil {
			w.chunks.drop(it.chunk)
		}
		it.clear()
		it.next = w.free
		w.free = it
	}
	w.events -= len(items)
	if w.waiting {
		w.waiting = false
		select {
		case w.room <- struct{}{}:
		default:
		}
	}
	if w.events == 0 && w.empty != nil {
		close(w.empty)
		w.empty = nil
	}
}

// whenEmpty returns a channel that is closed once no event is inside.
func (w *budget) whenEmpty() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.empty == nil {
		w.empty = make(chan struct{})
	}
	c := w.empty
	if w.events == 0 {
		close(w.empty)
		w.empty = nil
	}
	return c
}

// size is what is inside: events and their bytes, and the memory charged for them.
func (w *budget) size() (events int, bytes, charged int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events, w.bytes, w.chunks.charged
}
