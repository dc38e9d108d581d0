// Whether an event is the one that an earlier call has sent.

package kafka

import (
	"hash/maphash"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
)

// eventIdentity distinguishes the events of batches. A replayed dead letter has a header that its
// first record lacks, and so has the mirror's copy of one.
//
// A position alone does not name an event here. The sink outlives the line, and what the line
// reads: a server whose storage was rolled back gives positions a second time
// (replication/rolledback.go). An event that was taken for another one of its position would be
// confirmed over that one's record, and stored nowhere. So the content has to be the same, too.
// Then the record that is stored, or the bytes that are sent again, are this event's, whichever
// history of the database it is from. Other content is another batch's, as R2 has it. A lost
// session, or a new leader's term, does not change a row, so its batch is still recognised. Memory
// that ended with a term would rest on every way to a second history being a new term.
type eventIdentity struct {
	position       event.Position
	replay, copied bool
	content        uint64
}

func identityOf(ev *event.Event) eventIdentity {
	return eventIdentity{ev.Position, ev.Replay, ev.Copy, contentOf(ev)}
}

// is reports whether w is the event. Hardly any position is w's, so hardly any content is read.
func (w eventIdentity) is(ev *event.Event) bool {
	return ev.Position == w.position && w == identityOf(ev)
}

var contentSeed = maphash.MakeSeed()

// contentOf is a digest of all that a record is made of. Two different events have the same one
// once in 2^64. Times are compared to the microsecond, which is what a deferred row keeps of them.
func contentOf(ev *event.Event) uint64 {
	var h maphash.Hash
	h.SetSeed(contentSeed)
	for _, n := range [...]int64{ev.CommitTime.UnixMicro(), ev.Time.UnixMicro(), int64(ev.PayloadKind)} {
		maphash.WriteComparable(&h, n)
	}
	add := func(value []byte) {
		length := len(value)
		if value == nil {
			length = client.None
		}
		maphash.WriteComparable(&h, length)
		h.Write(value)
	}
	for _, value := range [...][]byte{ev.ID, ev.Aggregate, ev.Key, ev.Type, ev.Payload, ev.Traceparent, ev.Headers} {
		add(value)
	}
	for _, value := range ev.Columns {
		add(value)
	}
	return h.Sum64()
}
