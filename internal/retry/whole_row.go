// The row of a replay of which values are left out: it is read beside the feeder's other work.

package retry

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// wholeRow is what came of reading the row of a replay.
type wholeRow struct {
	event *event.Event
	why   string // there is no event: the replay fails
	err   error  // it is read again
}

// readWhole begins to read the row of a replay. The row may be as large as any, which takes
// minutes: so it has a goroutine of its own, and there is one at a time.
//
// It may also need more memory than there is, and then this process is killed. So the request says
// that we have begun, committed before anything is read: the next leader answers it, instead of
// being killed in its turn.
func (f *feeder) readWhole(ctx context.Context, q *store.Request) {
	f.reading = q
	ev := q.Row.Event
	f.readers.Go(func() {
		w := &wholeRow{err: f.cfg.Store.BeginReplay(ctx, q.ID)}
		if w.err == nil {
			w.event, w.why, w.err = f.cfg.ReadRow(ctx, &ev)
		}
		f.mu.Lock()
		f.asked.whole = w
		f.mu.Unlock()
		signal(f.woken)
	})
}

// begunBefore is why a replay is not tried again that an earlier leader has begun and not answered;
// "" if none has.
func (f *feeder) begunBefore(q *store.Request) string {
	if q.Begun == 0 || q.Begun == f.cfg.Epoch {
		return ""
	}
	var size int64
	if left := q.Row.Event.LeftOut; left != nil {
		size = left.Bytes
	}
	return fmt.Sprintf("the relay ended, or lost its lead, while it replayed the row of %d bytes: give it about 3 times that in memory, then replay it again", size)
}
