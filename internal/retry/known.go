package retry

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// known are the positions of rows and letters, a page at a time, while the stream repeats what was read before this term.
// It is the reader's.
//
// A row that is found here is counted by this term, or was written by it: the pages are read under the fence, and a newer
// leader's rows, which no count of ours holds, are never among them. A row that was delivered and deleted before its page
// was read is sent once more, after itself: a duplicate, and nothing overtakes.
type known struct {
	highest outbox.Position
	page    []store.Owned   // those from last on
	last    outbox.Position // asked for last
	all     bool            // nothing follows the page
	told    bool            // of another event's position, once in a term
	pace    pace
}

const knownPage = 1000

// Known reports whether the event is in the tables. Another event can have the position of one that
// is there: the source's storage was rolled back, say, and writes that part of its WAL a second
// time. That one is not known: it is sent, or meets Park's error. By its position alone it would be
// settled, and be nowhere.
func (s *Siding) Known(ctx context.Context, ev *outbox.Event) (bool, error) {
	k, pos := &s.known, ev.Position
	if k.highest.Less(pos) {
		k.page, k.all = nil, false // a transaction may come once more, of which no event was admitted
		return false, nil
	}
	if pos.Less(k.last) { // likewise: what is before the page must not be taken for absent
		k.page, k.all = nil, false
	}
	k.last = pos
	for {
		i, found := slices.BinarySearchFunc(k.page, pos, func(o store.Owned, pos outbox.Position) int { return o.Position.Compare(pos) })
		k.page = k.page[i:]
		if found {
			if k.page[0].Is(ev) {
				return true, nil
			}
			if !k.told {
				k.told = true
				s.cfg.Log.Warn("an event has the position of another one that is parked or dead; it is sent as any other. Was the server's storage rolled back?",
					zap.Stringer("position", pos))
			}
			return false, nil
		}
		if len(k.page) > 0 || k.all {
			return false, nil
		}
		page, err := s.cfg.Store.Positions(ctx, pos, knownPage)
		switch {
		case err == nil:
			k.pace.succeeded()
			k.page, k.all = page, len(page) < knownPage
		case errors.Is(err, store.ErrFenced):
			s.fence()
			<-ctx.Done()
			return false, ctx.Err()
		case ctx.Err() != nil || !slept(ctx, k.pace.failed(err)):
			return false, ctx.Err()
		}
	}
}
