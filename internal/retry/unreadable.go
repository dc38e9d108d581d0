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

// unreadPause is between two looks at a chain that cannot be read.
const unreadPause = time.Minute

// read reads the beginnings of chains. A row that cannot be read, a damaged one, must not keep back
// other chains than its own: what fails together is read apart, and the chain that fails alone is
// left out and looked at after a while.
func (f *feeder) read(ctx context.Context, chains []uint64, run int, size, acked int64) ([]store.Run, error) {
	runs, err := f.cfg.Store.Runs(ctx, chains, run, size, acked)
	switch {
	case !store.IsRefused(err):
		return runs, err
	case len(chains) == 1:
		f.leaveUnreadable(chains[0], err)
		return nil, nil
	}
	half := len(chains) / 2
	if runs, err = f.read(ctx, chains[:half], run, size, acked); err != nil {
		return nil, err
	}
	for _, r := range runs {
		for _, row := range r.Rows {
			size -= int64(row.Event.Size())
		}
	}
	rest, err := f.read(ctx, chains[half:], run, max(size, 1), acked)
	return append(runs, rest...), err
}

// leaveUnreadable leaves a chain alone that cannot be read.
func (f *feeder) leaveUnreadable(chain uint64, err error) {
	if text := err.Error(); !f.said[text] {
		f.said[text] = true
		f.cfg.Log.Error("a parked row cannot be read: it is tried again and its key stands still meanwhile, nothing is dropped",
			zap.Int64("chain", int64(chain)), zap.Error(err))
	}
	f.unread[chain] = time.Now().Add(unreadPause)
	f.notNow(chain)
	f.afterwards(chain, unreadPause)
}

// cannotRead reports whether a chain is one that is left alone for now.
func (f *feeder) cannotRead(chain uint64) bool {
	until, unread := f.unread[chain]
	switch {
	case !unread:
		return false
	case until.After(time.Now()):
		f.notNow(chain)
		return true
	}
	delete(f.unread, chain)
	return false
}

// readable leaves out the chains that cannot be read.
func (f *feeder) readable(taken []*readied) []*readied {
	return slices.DeleteFunc(taken, func(e *readied) bool { return f.cannotRead(e.chain) })
}

// readRequests lists what operators asked for, at most limit. What comes before a letter that
// cannot be read is listed without it. When it is the first, the request to replay it is answered:
// what cannot be read cannot be sent.
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
	words := "the letter cannot be read: " + err.Error()
	if all, err = f.cfg.Store.Requests(ctx, 1, 0); err != nil {
		return nil, limit, nil, err
	}
	for _, q := range all {
		if q.Kind == store.Replay && q.Row != nil {
			answers = append(answers, store.Answer{Request: q, Outcome: sink.Outcome{
				State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.Undecodable, Words: words},
			}})
		}
	}
	return nil, limit, answers, nil
}
