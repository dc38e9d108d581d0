// The in-flight budget: it bounds the events and the bytes in the line, so that memory stays flat
// while a broker is slow or away. The bytes are in chunks, and what is charged is the chunks' size,
// because that is the memory that is really in use.

package inflight

import (
	"math/bits"
	"sync"
)

// Budget bounds what is in the line, by the number of events and by the bytes of the chunks they
// are in. It owns the pools of events and chunks.
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

// NewBudget makes a budget of so many events and so many bytes of chunks.
func NewBudget(events int, bytes int64) *Budget {
	return &Budget{limit: events, chunks: newChunks(bytes), room: make(chan struct{}, 1)}
}

// Admit takes in an event of size bytes for the lane of a. It returns an empty event and the buffer
// for its bytes. It returns nil when the in-flight budget is full: the reader then waits for room
// and calls Admit again.
func (b *Budget) Admit(a *Arena, size int) (*Event, []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.events >= b.limit {
		b.waiting = true
		return nil, nil
	}
	c, buf, ok := b.chunks.placeBytes(a, size)
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

// Release takes back settled events and the memory of their bytes, and wakes the reader if it waits
// for room.
func (b *Budget) Release(items []*Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, it := range items {
		b.bytes -= int64(it.Size)
		if it.chunk != nil {
			b.chunks.settleEvent(it.chunk)
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

// WhenEmpty returns a channel that is closed once no event is in the line.
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

// Sizes of the chunks: powers of two from minChunk to maxChunk. An event larger than a quarter of
// the largest chunk has a chunk of its own, of exactly its size.
const (
	minChunk     = 4 << 10
	maxChunk     = 64 << 10
	chunkClasses = 5
)

// chunk holds the bytes of some events of one lane. It is charged to the in-flight budget while one
// of these events is unsettled, because an unsettled event keeps its whole chunk.
type chunk struct {
	buf   []byte
	used  int
	live  int    // unsettled events in it
	arena *Arena // of the lane whose events are in it
	class int    // its size is minChunk << class; -1: it has one event, and the size of that event
	next  *chunk // in the free list of its class
}

// Arena is a lane's share of the chunks. A chunk belongs to one lane for two reasons: events of a
// lane settle at about the same time, and a stalled lane must not keep the memory of other lanes.
type Arena struct {
	open    *chunk // where the next event goes; nil when it needs a new one
	charged int64  // bytes of the lane's chunks
}

// chunks hands out chunks and takes them back; the budget's mutex guards it. The chunks that are
// handed out and those in the free lists together never have more than limit bytes, apart from one
// oversize chunk.
type chunks struct {
	limit int64 // bytes: delivery.max_in_flight_bytes
	// largest is the size of the largest class in bytes; 0 means that limit is too small for
	// classes, and that every event has a chunk of its own
	largest     int
	charged     int64                // bytes of the chunks that are handed out
	idle        int64                // bytes of the chunks in the free lists
	free        [chunkClasses]*chunk // free lists, by class
	oversizeOut bool                 // a chunk larger than limit is out
}

// newChunks makes chunks of limit bytes in all. The largest class is at most a 64th of the limit,
// so that a few stalled lanes do not take all of it.
func newChunks(limit int64) chunks {
	c := chunks{limit: limit}
	for size := minChunk; size <= maxChunk && int64(size) <= limit/64; size *= 2 {
		c.largest = size
	}
	return c
}

// placeBytes finds room for size bytes of a's lane, and returns the room with its chunk; false
// means that the budget has no room. An event of no bytes needs no chunk.
func (p *chunks) placeBytes(a *Arena, size int) (*chunk, []byte, bool) {
	if size == 0 {
		return nil, nil, true
	}
	c := a.open
	if size > p.largest/4 {
		if c = p.ownChunk(a, size); c == nil {
			return nil, nil, false
		}
	} else if c == nil || c.used+size > len(c.buf) {
		if c = p.takeChunk(a, size); c == nil {
			return nil, nil, false
		}
		a.open = c
	}
	buf := c.buf[c.used : c.used+size : c.used+size]
	c.used += size
	c.live++
	return c, buf, true
}

// ownChunk makes a chunk for one event. An event that is larger than the whole limit is admitted
// above the limit, one such event at a time. It does not wait for an empty budget: the budget may
// never become empty while another event waits.
func (p *chunks) ownChunk(a *Arena, size int) *chunk {
	switch {
	case int64(size) > p.limit && p.oversizeOut:
		return nil
	case int64(size) > p.limit:
		p.oversizeOut = true
	case !p.fits(size):
		return nil
	default:
		p.chargeBytes(a, size)
	}
	return &chunk{buf: make([]byte, size), arena: a, class: -1}
}

// takeChunk opens a chunk of a class for a lane; nil means that the budget has no room. The chunk
// is about as large as all chunks of the lane together, so quiet lanes stay small and a busy lane
// gets large chunks. If the in-flight budget has no room for that, the chunk has the smallest class
// that holds the event.
func (p *chunks) takeChunk(a *Arena, size int) *chunk {
	class := classOf(max(size, int(min(a.charged, int64(p.largest)))))
	if !p.fits(minChunk << class) {
		if class = classOf(size); !p.fits(minChunk << class) {
			return nil
		}
	}
	c := p.free[class]
	if c != nil {
		p.free[class] = c.next
		p.idle -= int64(len(c.buf))
	}
	p.chargeBytes(a, minChunk<<class)
	if c == nil {
		c = &chunk{buf: make([]byte, minChunk<<class), class: class}
	}
	c.arena, c.next = a, nil
	return c
}

// fits reports whether the budget has room for size more bytes. Idle chunks do not count: they give
// way.
func (p *chunks) fits(size int) bool { return p.charged+int64(size) <= p.limit }

// chargeBytes books size bytes for a's lane; idle chunks give way to them.
func (p *chunks) chargeBytes(a *Arena, size int) {
	p.charged += int64(size)
	a.charged += int64(size)
	if p.charged+p.idle > p.limit {
		p.free, p.idle = [chunkClasses]*chunk{}, 0
	}
}

// settleEvent notes that an event of c is settled. The last settled event frees the chunk, even if
// the chunk is still open.
func (p *chunks) settleEvent(c *chunk) {
	if c.live--; c.live > 0 {
		return
	}
	size := int64(len(c.buf))
	if c.class < 0 && size > p.limit {
		p.oversizeOut = false
		return
	}
	p.charged -= size
	c.arena.charged -= size
	if c.class < 0 {
		return
	}
	if c.arena.open == c {
		c.arena.open = nil
	}
	if p.charged+p.idle+size > p.limit {
		return
	}
	c.used, c.arena, c.next = 0, nil, p.free[c.class]
	p.free[c.class] = c
	p.idle += size
}

// classOf is the smallest class whose chunks hold n bytes.
func classOf(n int) int {
	if n <= minChunk {
		return 0
	}
	return bits.Len(uint((n - 1) / minChunk))
}
