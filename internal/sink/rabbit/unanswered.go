// The destinations that do not answer: a queue is stuck, or has lost its majority.

package rabbit

import "sync"

// maxUnanswered bounds the destinations that are known not to answer. All are forgotten then, and
// found again by their probes, which are waited for as long as any call.
const maxUnanswered = 10_000

// unanswered are the destinations (sink.Place.Dest) that are known not to answer.
type unanswered struct {
	mu    sync.Mutex
	dests map[uint64]struct{}
}

// note takes whether an event of a destination was left without an answer.
func (u *unanswered) note(dest uint64, is bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !is {
		delete(u.dests, dest)
		return
	}
	if u.dests == nil || len(u.dests) >= maxUnanswered {
		u.dests = map[uint64]struct{}{}
	}
	u.dests[dest] = struct{}{}
}

func (u *unanswered) has(dest uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, is := u.dests[dest]
	return is
}
