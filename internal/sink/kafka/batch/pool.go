// Batches between two uses.

package batch

import (
	"sync"

	"github.com/segmentio/kafka-go/compress"
)

// Pool lends out batches, so that a producer without one under way keeps no buffer.
type Pool struct {
	Codec compress.Compression
	pool  sync.Pool
}

// Get returns an empty batch, which is the caller's until Put.
func (b *Pool) Get() *Batch {
	if used, ok := b.pool.Get().(*Batch); ok {
		return used
	}
	return New(b.Codec)
}

// Put empties a batch and takes it back. The caller must use neither it nor its bytes any more.
func (b *Pool) Put(used *Batch) {
	used.Reset()
	b.pool.Put(used)
}
