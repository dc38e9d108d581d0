// How far a partition was handled.

package kafka

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// partition is one that this process reads. Messages are taken in order and handled in any. The
// offset to commit is the lowest that was not handled: what was handled above it may come again,
// and then has no effect.
type partition struct {
	topic string
	id    int
	own   bool // of the service's own topics

	freed chan struct{} // has one when pending has become shorter

	mu      sync.Mutex
	next    int64   // the offset to take next
	pending []taken // in the order of their offsets; the first is not handled
	trimmed int64   // messages before this one were deleted
	stored  int64   // the committed offset
	gone    bool    // the topic was deleted
}

type taken struct {
	offset  int64
	handled bool
}

// start makes the partition read from an offset on.
func (p *partition) start() (from int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.pending = p.handledTo(), nil
	return p.next
}

// room waits until fewer messages than bound were taken since the first that is not handled. It is
// false when ctx ends before.
func (p *partition) room(ctx context.Context, bound int) bool {
	for {
		p.mu.Lock()
		full := len(p.pending) >= bound
		p.mu.Unlock()
		if !full {
			return true
		}
		select {
		case <-p.freed:
		case <-ctx.Done():
			return false
		}
	}
}

// take notes that the message at an offset is being handled.
func (p *partition) take(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, taken{offset: offset})
	p.next = offset + 1
}

// skip notes that there is no message before an offset.
func (p *partition) skip(to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = max(p.next, to)
}

// handled notes that a message has had its effect, or is kept by another topic.
func (p *partition) handled(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, found := slices.BinarySearchFunc(p.pending, offset, func(t taken, offset int64) int { return cmp.Compare(t.offset, offset) })
	if !found {
		return
	}
	p.pending[i].handled = true
	n := 0
	for n < len(p.pending) && p.pending[n].handled {
		n++
	}
	p.pending = p.pending[n:]
	if n > 0 {
		select {
		case p.freed <- struct{}{}:
		default:
		}
	}
}

// handledTo is the lowest offset that was not handled.
func (p *partition) handledTo() int64 {
	if len(p.pending) > 0 {
		return p.pending[0].offset
	}
	return p.next
}

// uncommitted returns the offset to commit, if it is not committed.
func (p *partition) uncommitted() (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := p.handledTo()
	return to, to != p.stored && !p.gone
}

// committed notes that the group has an offset.
func (p *partition) committed(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stored = offset
}

// untrimmed returns the offset before which the messages are to be deleted, if they are not.
func (p *partition) untrimmed() (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stored, p.own && p.stored > p.trimmed && !p.gone
}

// trimTo notes that the messages before an offset were deleted.
func (p *partition) trimTo(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trimmed = offset
}

// forget notes that the topic was deleted: an offset of it would be one of the next topic of its
// name, and messages would be deleted there.
func (p *partition) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
}
