// How large a batch may be.

package batch

const (
	// ordinaryBatch is below the 1,048,588 bytes (max.message.bytes) that a topic takes unless it
	// is configured, and above what nearly every call carries. In bytes before compression.
	ordinaryBatch = 950_000
	// RecordFrame is more than the lengths and deltas of one record take, in bytes.
	RecordFrame = 48
)

// SizeLimit is how large a batch a partition takes, in bytes before compression, as far as its
// broker has shown: the broker measures the batch as it comes, compressed, and does not say what
// its limit is.
type SizeLimit struct {
	fits    int // the largest that was stored
	refused int // the smallest that was refused, larger than fits; 0: none
}

// Next is what the next batch should not pass. One record it may always have. Each refused batch
// halves it at least, so a batch that keeps being refused is down to one record soon; what was once
// stored goes through at once.
func (l *SizeLimit) Next() int {
	if l.refused == 0 {
		return ordinaryBatch
	}
	return min(ordinaryBatch, max(l.fits, l.refused/2))
}

// Stored says that a batch of size bytes was.
func (l *SizeLimit) Stored(size int) {
	// the setting was raised, or the batch compresses better
	if l.refused > 0 && size >= l.refused {
		l.refused = 0
	}
	l.fits = max(l.fits, size)
}

// TooLarge says that a batch of size bytes was refused.
func (l *SizeLimit) TooLarge(size int) {
	l.refused = size
	if l.fits >= size { // the setting was lowered, or the batch compresses worse
		l.fits = 0
	}
}
