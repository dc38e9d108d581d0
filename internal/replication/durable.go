package replication

import (
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/jackc/pglogrepl"
)

// durable is what this process knows to be in the database: the epoch of its last term, the flush
// limit under it, and the watermark when its last raise was sent.
type durable struct {
	epoch               int64
	raised              string // record.Raised
	flushLimit, settled pglogrepl.LSN
}

// resume is the position from which this process goes on when nobody led since: what was committed
// below it is settled, and the database proves that it is still what was read. 0: the slot's own
// position. An equal epoch is not enough: on storage from before our term another relay may have
// raised it to the same number.
func (d durable) resume(rec *slot.Record) pglogrepl.LSN {
	if rec.Epoch != d.epoch || rec.Raised != d.raised || rec.FlushLimit < d.flushLimit {
		return 0
	}
	return d.settled
}
