// What was made of texts that rows have, for the next row with the same one.

package debezium

import "sync"

// cache keeps values by text. The texts are made from data, so it is bounded by the bytes that it
// keeps (I5): it is emptied when it is full, and keeps nothing of a text that is long. It is safe
// for concurrent use, and the zero value is empty.
type cache[V any] struct {
	mu    sync.RWMutex
	known map[string]V
	bytes int
}

const (
	maxCached  = 1 << 20 // of a cache, in bytes
	maxEntry   = 4 << 10 // of one entry, likewise
	entryBytes = 256     // what one takes beside its texts
)

func (c *cache[V]) get(text []byte) (v V, known bool) {
	c.mu.RLock()
	v, known = c.known[string(text)]
	c.mu.RUnlock()
	return v, known
}

// put keeps a value; size is about how many bytes it has.
func (c *cache[V]) put(text []byte, v V, size int) {
	if size += len(text) + entryBytes; size > maxEntry {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.known[string(text)]; known {
		return
	}
	if c.bytes += size; c.known == nil || c.bytes > maxCached {
		c.known, c.bytes = map[string]V{}, size
	}
	c.known[string(text)] = v
}
