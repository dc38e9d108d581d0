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

func (b *Pool) Get() *Batch {
	if used, ok := b.pool.Get().(*Batch); ok {
		return used
	}
	return New(b.Codec)
}

func (b *Pool) Put(used *Batch) {
	used.Reset()
	b.pool.Put(used)
}
