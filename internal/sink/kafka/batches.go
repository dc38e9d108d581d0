// Batches between two uses.

package kafka

import (
	"sync"

	"github.com/segmentio/kafka-go/compress"
)

// batches lends out batches, so that a stream without one under way keeps no buffer.
type batches struct {
	of   compress.Compression
	pool sync.Pool
}

func (b *batches) get() *batch {
	if used, ok := b.pool.Get().(*batch); ok {
		return used
	}
	return newBatch(b.of)
}

func (b *batches) put(used *batch) {
	used.reset()
	b.pool.Put(used)
}
