// How large a batch may be.

package kafka

const (
	// ordinaryBatch is below the 1,048,588 bytes (max.message.bytes) that a topic takes unless it is configured, and above
	// what nearly every call carries. In bytes before compression.
	ordinaryBatch = 950_000
	// maxRequest bounds what is merged into one request, in bytes. A larger batch goes alone.
	maxRequest = 4 << 20
	// recordFrame is more than the lengths and deltas of one record take, in bytes.
	recordFrame = 48
)

// limit is how large a batch a partition takes, in bytes before compression, as far as its broker has shown: the broker
// measures the batch as it comes, compressed, and does not say what its limit is.
type limit struct {
	fits    int // the largest that was stored
	refused int // the smallest that was refused, larger than fits; 0: none
}

// next is what the next batch should not pass. One record it may always have. Each refused batch halves it at least, so a
// batch that keeps being refused is down to one record soon; what was once stored goes through at once.
func (l *limit) next() int {
	if l.refused == 0 {
		return ordinaryBatch
	}
	return min(ordinaryBatch, max(l.fits, l.refused/2))
}

// stored says that a batch of size bytes was.
func (l *limit) stored(size int) {
	if l.refused > 0 && size >= l.refused { // the setting was raised, or the batch compresses better
		l.refused = 0
	}
	l.fits = max(l.fits, size)
}

// tooLarge says that a batch of size bytes was refused.
func (l *limit) tooLarge(size int) {
	l.refused = size
	if l.fits >= size { // the setting was lowered, or the batch compresses worse
		l.fits = 0
	}
}
