// The way of a stream back to its lane.

package kafka

import (
	"sync"
)

// inbox is where a lane's streams come back from the workers.
type inbox struct {
	mu      sync.Mutex
	streams []*stream
	taken   []*stream     // by the last take, and to be used again
	filled  chan struct{} // cap 1
}

// deliver gives a stream back to its lane, with its answer.
func (s *stream) deliver() {
	in := &s.lane.inbox
	in.mu.Lock()
	in.streams = append(in.streams, s)
	in.mu.Unlock()
	tell(in.filled)
}

// take is what came back, good until the next take.
func (in *inbox) take() []*stream {
	in.mu.Lock()
	defer in.mu.Unlock()
	clear(in.taken)
	in.streams, in.taken = in.taken[:0], in.streams
	return in.taken
}
