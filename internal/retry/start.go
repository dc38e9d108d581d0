// The start of a term: counts are read back, and events that the stream repeats are recognized.

package retry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// repeatedPositions holds the positions of rows and dead letters, a page at a time, while the
// stream repeats what was read before this term. Only the reader uses it.
//
// A row that is found here is counted by this term, or was written by it: the pages are read under
// the fence, and a newer leader's rows, which none of our counts includes, are never among them. A
// row that was delivered and deleted before its page was read is sent once more, after itself: a
// duplicate, and nothing overtakes.
type repeatedPositions struct {
	highest event.Position
	page    []store.Owned  // those from last on
	last    event.Position // asked for last
	all     bool           // nothing follows the page
	warned  bool           // about another event at a position, once in a term
	pace    retryPace
}

const positionsPage = 1000

// Known reports whether the event is in the tables. Another event can have the position of one that
// is there: the source's storage was rolled back, say, and writes that part of its WAL a second
// time. That one is not known: it is sent, or meets Defer's error. If only positions were compared
// it would be settled, and be nowhere.
func (s *Table) Known(ctx context.Context, ev *event.Event) (bool, error) {
	k, pos := &s.repeated, ev.Position
	if k.highest.Less(pos) {
		// a transaction of which no event was admitted may come once more
		k.page, k.all = nil, false
		return false, nil
	}
	if pos.Less(k.last) { // likewise: what is before the page must not be taken for absent
		k.page, k.all = nil, false
	}
	k.last = pos
	for {
		i, found := slices.BinarySearchFunc(k.page, pos, func(o store.Owned, pos event.Position) int { return o.Position.Compare(pos) })
		k.page = k.page[i:]
		if found {
			if k.page[0].Is(ev) {
				return true, nil
			}
			if !k.warned {
				k.warned = true
				s.cfg.Log.Warn("a different event is stored at this position: this one is sent normally; check whether the server's storage was rolled back",
					zap.Stringer("position", pos))
			}
			return false, nil
		}
		if len(k.page) > 0 || k.all {
			return false, nil
		}
		page, err := s.cfg.Store.Positions(ctx, pos, positionsPage)
		switch {
		case err == nil:
			k.pace.succeeded()
			k.page, k.all = page, len(page) < positionsPage
		case errors.Is(err, store.ErrFenced):
			s.endFenced()
			<-ctx.Done()
			return false, ctx.Err()
		case ctx.Err() != nil || !slept(ctx, k.pace.failed(err)):
			return false, ctx.Err()
		}
	}
}

// Load connects the retry table to its line, before either runs: it adds the rows in the tables to
// the line's counts, and learns up to which position the stream may repeat them. After an error
// neither may be used; an *event.Stop says that a newer leader leads.
//
// It comes after the epoch was raised: from then on no former leader adds a row that would not be
// counted.
func (s *Table) Load(ctx context.Context, line Line) error {
	s.line = line
	// A block of our own first: every row that is there has a lower number, every row of ours will
	// have a higher one. So the feeder may read the former at once, and the latter when the writer
	// has seen them committed.
	first, err := s.cfg.Store.Lease(ctx)
	if err != nil {
		return s.loading(err)
	}
	s.writer.next, s.writer.end = first, first+store.LeaseSize
	s.writer.acked.Store(first - 1)
	s.repeated.highest, err = s.cfg.Store.Load(ctx, func(c store.Count) error {
		ctx, cancel := context.WithTimeout(ctx, loadPatience)
		defer cancel()
		return line.Load(ctx, &c.Event, c.Rows)
	})
	return s.loading(err)
}

// loadPatience bounds the wait for a broker that does not know yet where an event belongs. It does
// not bound the whole Load, which depends on the size of the table; each statement has its own
// timeout.
const loadPatience = 5 * time.Minute

func (s *Table) loading(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrFenced):
		return s.stop()
	}
	return fmt.Errorf("count deferred rows: %w", err)
}

// stop is the error of a leader that has a successor.
func (s *Table) stop() *event.Stop { return dlq.Fenced(s.cfg.Slot, s.cfg.Epoch) }

// endFenced ends Run: a fenced leader must not do anything more.
func (s *Table) endFenced() { s.once.Do(func() { close(s.fenced) }) }
