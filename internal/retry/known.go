package retry

import (
	"context"
	"errors"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// known are the positions of rows and letters, a page at a time, while the stream repeats what was read before this term.
// It is the reader's.
//
// A row that is found here is counted by this term, or was written by it: the pages are read under the fence, and a newer
// leader's rows, which no count of ours holds, are never among them. A row that was delivered and deleted before its page
// was read is sent once more, after itself: a duplicate, and nothing overtakes.
type known struct {
	highest outbox.Position
	page    []outbox.Position // those from last on
	last    outbox.Position   // asked for last
	all     bool              // nothing follows the page
	pace    pace
}

const knownPage = 1000

// Known reports whether an event of that position is in the tables.
func (s *Siding) Known(ctx context.Context, pos outbox.Position) (bool, error) {
	k := &s.known
	if k.highest.Less(pos) {
		k.page, k.all = nil, false // a transaction may come once more, of which no event was admitted
		return false, nil
	}
	if pos.Less(k.last) { // likewise: what is before the page must not be taken for absent
		k.page, k.all = nil, false
	}
	k.last = pos
	for {
		i, found := slices.BinarySearchFunc(k.page, pos, outbox.Position.Compare)
		k.page = k.page[i:]
		if found || len(k.page) > 0 || k.all {
			return found, nil
		}
		page, err := s.cfg.Store.Positions(ctx, pos, knownPage)
		switch {
		case err == nil:
			k.pace.succeeded()
			k.page, k.all = page, len(page) < knownPage
		case errors.Is(err, ErrFenced):
			s.fence()
			<-ctx.Done()
			return false, ctx.Err()
		case ctx.Err() != nil || !slept(ctx, k.pace.failed(err)):
			return false, ctx.Err()
		}
	}
}
