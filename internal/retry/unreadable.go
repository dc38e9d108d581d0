// Rows that cannot be read.

package retry

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// unreadPause is the pause between two attempts to read an ordering group that cannot be read.
const unreadPause = time.Minute

// read reads the first rows of ordering groups. A damaged row, which cannot be read, must block
// only its own ordering group. So when a read fails, its ordering groups are read in parts. An
// ordering group that fails alone is left out and read again after a while.
func (f *feeder) read(ctx context.Context, groups []uint64, run int, size, acked int64) ([]store.Run, error) {
	reportWork(f.cfg.Hooks.Feeder, true) // each part may have large rows, which take their time
	runs, err := f.cfg.Store.Runs(ctx, groups, run, size, acked)
	switch {
	case !store.IsRefused(err):
		return runs, err
	case len(groups) == 1:
		f.leaveUnreadable(groups[0], err)
		return nil, nil
	}
	half := len(groups) / 2
	if runs, err = f.read(ctx, groups[:half], run, size, acked); err != nil {
		return nil, err
	}
	for _, r := range runs {
		for _, row := range r.Rows {
			size -= int64(row.Event.Size())
		}
	}
	rest, err := f.read(ctx, groups[half:], run, max(size, 1), acked)
	return append(runs, rest...), err
}

// leaveUnreadable skips an ordering group that cannot be read, for a while.
func (f *feeder) leaveUnreadable(group uint64, err error) {
	if text := err.Error(); !f.logged[text] {
		f.logged[text] = true
		f.cfg.Log.Error("cannot read a deferred row: it is tried again and its key waits meanwhile, nothing is dropped",
			zap.Int64("ordering_group", int64(group)), zap.Error(err))
	}
	f.unread[group] = time.Now().Add(unreadPause)
	f.notNow(group)
	f.readyLater(group, unreadPause)
}

// cannotRead reports whether an ordering group is skipped for now.
func (f *feeder) cannotRead(group uint64) bool {
	until, unread := f.unread[group]
	switch {
	case !unread:
		return false
	case until.After(time.Now()):
		f.notNow(group)
		return true
	}
	delete(f.unread, group)
	return false
}

// readable leaves out the ordering groups that cannot be read.
func (f *feeder) readable(taken []*readied) []*readied {
	return slices.DeleteFunc(taken, func(e *readied) bool { return f.cannotRead(e.group) })
}

// readRequests lists operators' requests, at most limit. It lists the requests before a dead letter
// that cannot be read. When that dead letter is the first, the request to replay it is answered: a
// dead letter that cannot be read cannot be sent.
func (f *feeder) readRequests(ctx context.Context) (all []store.Request, limit int, answers []store.Answer, err error) {
	for limit = requestRows; ; limit /= 2 {
		all, err = f.cfg.Store.Requests(ctx, limit, requestBytes)
		if err == nil {
			return all, limit, nil, nil
		}
		if !store.IsRefused(err) {
			return nil, limit, nil, err
		}
		if limit == 1 {
			break
		}
	}
	words := "the dead letter cannot be read: " + err.Error()
	if all, err = f.cfg.Store.Requests(ctx, 1, 0); err != nil {
		return nil, limit, nil, err
	}
	for _, q := range all {
		if q.Kind == store.Replay && q.Row != nil {
			answers = append(answers, store.Answer{Request: q, Outcome: sink.Outcome{
				State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.Undecodable, Text: words},
			}})
		}
	}
	return nil, limit, answers, nil
}
