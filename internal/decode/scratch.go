// Shared by rows and logical messages: the index in the transaction, the event that they fill, and
// its buffers.

package decode

import (
	"errors"
	"fmt"
	"math"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// count gives the frame its index in the transaction. Every I, U, D and transactional M frame is
// counted here, and nothing else, whatever table it belongs to: a position must not depend on the
// configuration.
func (d *Decoder) count() (uint32, error) {
	if !d.open {
		return 0, errors.New("it is outside a transaction")
	}
	if d.index == math.MaxUint32 {
		return 0, fmt.Errorf("transaction %d has more than %d changes: their positions cannot be distinguished", d.xid, uint32(math.MaxUint32))
	}
	d.index++
	return d.index - 1, nil
}

// SetIndex sets the index of the open transaction's next change, for rows that do not come from a
// stream: each is a transaction of its own here, and many of them share a commit.
func (d *Decoder) SetIndex(index uint32) { d.index = index }

// blank resets the decoder's event to one with only a position.
func (d *Decoder) blank(pos event.Position) *event.Event {
	d.event = event.Event{Position: pos, CommitTime: d.commitTime, Time: d.commitTime}
	return &d.event
}

// order sets the event's order and hash. An event that cannot be decoded is never sent, so no later
// event of its key has to wait for it.
func (d *Decoder) order(ev *event.Event) {
	ev.Ordered = len(ev.Key) > 0 && ev.Fault == nil
	if ev.Ordered {
		ev.Hash = d.keys.Of(ev.Aggregate, ev.Key)
	} else {
		ev.Hash = event.HashPosition(ev.Position)
	}
}

// maxKept bounds the bytes of a buffer that are kept from one row to the next.
const maxKept = 1 << 20

// reuse is the buffer, empty, for the next row; nil for one that is too large to be kept.
func reuse(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}
