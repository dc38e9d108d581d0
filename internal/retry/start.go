// The start of a term: where rows are is asked, and events that the stream repeats are recognized.

package retry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// repeatedPositions holds the positions of rows and dead letters, a page at a time, while the
// stream repeats what was read before this term. Only the reader uses it.
//
// A row that is found here was there when this term began, or was written by it: the pages are read
// under the fence, so they never include rows of a newer leader. So its lane knows that the
// ordering group has rows, or is unsure, and no later event passes it. A row that was delivered and
// deleted before its page was read is sent once more, after its first delivery: that is a
// duplicate, and nothing is overtaken.
type repeatedPositions struct {
	highest    event.Position
	page       []store.StoredPosition // from askedFrom on
	askedFrom  event.Position         // the position that was looked up last
	isLastPage bool                   // the tables have nothing behind page
	warned     bool                   // about another event at a position, once in a term
	pace       retryPace
}

const positionsPage = 1000

// Known reports whether the event is in the tables. A different event can have the position of a
// stored one, for example after the source's storage was rolled back and writes that part of its
// WAL a second time. Such an event is not known: it is sent, or Defer returns an error. If Known
// compared only positions, that event would be settled, and lost.
func (t *Table) Known(ctx context.Context, ev *event.Event) (bool, error) {
	k, pos := &t.repeatedPositions, ev.Position
	if k.highest.Less(pos) {
		// a transaction of which no event was admitted may come once more
		k.page, k.isLastPage = nil, false
		return false, nil
	}
	if pos.Less(k.askedFrom) { // likewise: an event before the page must not be taken for absent
		k.page, k.isLastPage = nil, false
	}
	k.askedFrom = pos
	for {
		i, found := slices.BinarySearchFunc(k.page, pos, func(o store.StoredPosition, pos event.Position) int { return o.Position.Compare(pos) })
		k.page = k.page[i:]
		if found {
			if k.page[0].Matches(ev) {
				return true, nil
			}
			if !k.warned {
				k.warned = true
				t.cfg.Log.Warn("a different event is stored at this position: this one is sent normally; check whether the server's storage was rolled back",
					zap.Stringer("position", pos))
			}
			return false, nil
		}
		if len(k.page) > 0 || k.isLastPage {
			return false, nil
		}
		page, err := t.cfg.Store.PositionsFrom(ctx, pos, positionsPage)
		switch {
		case err == nil:
			k.pace.succeeded()
			k.page, k.isLastPage = page, len(page) < positionsPage
		case errors.Is(err, store.ErrFenced):
			t.endFenced()
			<-ctx.Done()
			return false, ctx.Err()
		case ctx.Err() != nil || !sleep(ctx, k.pace.failed(err)):
			return false, ctx.Err()
		}
	}
}

// Load connects the retry table to its line, before either of them runs. It tells the line which
// exchanges and topics have rows: there each ordering group is looked up before an event of it
// goes. It also learns up to which position the stream may repeat events that have rows. After an
// error neither may be used; an *event.Stop means that a newer leader leads.
//
// Load is called after the epoch was raised: from then on no former leader can add a row that these
// reads do not show.
func (t *Table) Load(ctx context.Context, line Line) error {
	t.line = line
	// Lease a block of numbers first: every row in the tables has a lower number, and every row of
	// ours will have a higher one. So the feeder may read the rows in the tables at once, and our
	// rows when the writer has seen their commit.
	first, err := t.cfg.Store.LeaseNumbers(ctx)
	if err != nil {
		return t.loadError(err)
	}
	t.writer.nextNumberLeased, t.writer.leaseEnd = first, first+store.LeaseSize
	t.writer.acked.Store(first - 1)
	if t.repeatedPositions.highest, err = t.cfg.Store.RegroupRows(ctx); err != nil {
		return t.loadError(err)
	}
	exchanges, err := t.cfg.Store.ExchangesWithRows(ctx)
	for _, exchangeOrTopic := range exchanges {
		line.Found(order.AllLanes, []order.Found{{ExchangeOrTopic: exchangeOrTopic, Unsure: true, Repeated: t.repeatedPositions.highest}})
		t.feeder.startWalk(walk{target: order.Target{ExchangeOrTopic: exchangeOrTopic}})
	}
	t.feeder.startWalk(walk{forResends: true})
	if err != nil {
		return t.loadError(err)
	}
	return t.loadError(t.pauseMissingExchanges(ctx, line))
}

// pauseMissingExchanges pauses the exchanges that an earlier leader has found missing. They may be
// there by now, with some of their queues bound and others not yet: an operator says when all are
// (sink.Fault.Held).
func (t *Table) pauseMissingExchanges(ctx context.Context, line Line) error {
	sinks, ok := t.cfg.Sink.(sink.Holder)
	if !ok {
		return nil
	}
	missing, err := t.cfg.Store.MissingExchanges(ctx)
	for _, m := range missing {
		if fix := sinks.Held(m.ExchangeOrTopic); fix != "" {
			line.Pauses().Refused(sink.Place{ExchangeOrTopic: m.ExchangeOrTopic}, &sink.Fault{
				Class: sink.Destination, Reason: sink.NoExchange, Whole: true, Destination: m.Destination, Text: m.Text, Held: fix,
			}, time.Now())
		}
	}
	return err
}

// loadError is what Load returns for the error of one of its statements.
func (t *Table) loadError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrFenced):
		return t.fencedStop()
	}
	return fmt.Errorf("read what is deferred: %w", err)
}

// fencedStop is the error of a leader that was fenced by its successor.
func (t *Table) fencedStop() *event.Stop { return dlq.Fenced(t.cfg.Slot, t.cfg.Epoch) }

// endFenced ends Run: a fenced leader must not do anything more.
func (t *Table) endFenced() { t.once.Do(func() { close(t.fenced) }) }

// stats counts the rows of the tables, for snapshots that cost nothing: each second while something
// changes, and for no more than a fiftieth of the time. (Counting a million rows at each scrape
// would cost PostgreSQL more than everything else that is done to them.)
type stats struct {
	// nil: nothing is counted
	count       func(ctx context.Context, limit int, paused []sink.Place) (store.Stats, error)
	limit       int
	pace        retryPace
	hooks       *Hooks
	rowsChanged atomic.Bool // rows were changed since the last count began

	mu      sync.Mutex
	counted store.Stats
}

// Before the first count, and between two.
const (
	statsFirst = 50 * time.Millisecond
	statsEvery = time.Second // while something changes
	statsIdle  = time.Minute // while nothing does
	statsShare = 50
	statsRetry = 10 * time.Second // after one that failed
)

// statsPaused is for how many paused destinations the waiting rows are counted.
const statsPaused = 20

// pausedPlaces are those destinations, the longest first.
func (t *Table) pausedPlaces() (places []sink.Place) {
	if !t.line.Pauses().AnyPaused() {
		return nil
	}
	for _, p := range t.line.Pauses().List() {
		if len(places) < statsPaused {
			places = append(places, p.Place)
		}
	}
	return places
}

func (t *stats) init(cfg *Config) {
	t.count, t.limit, t.hooks = cfg.Stats, store.StatsLimit, &cfg.Hooks
	t.pace = retryPace{log: cfg.Log, what: "counting deferred events"}
}

// run counts until ctx is done. The quicker of two counts is the pace: one that is slow for once,
// as the first is, which opens a connection, would leave the numbers old for most of a minute.
func (t *stats) run(ctx context.Context, paused func() []sink.Place) {
	for before := time.Duration(0); t.count != nil; {
		began := time.Now()
		reportWork(t.hooks.Stats, true)
		err := t.countOnce(ctx, paused())
		reportWork(t.hooks.Stats, false)
		if ctx.Err() != nil {
			return
		}
		took := time.Since(began)
		rest := max(statsEvery, statsShare*min(took, before))
		before = took
		if err != nil { // perhaps counting takes too long
			t.pace.failed(err)
			t.limit = max(t.limit/4, store.StatsLimit/100)
			rest = statsRetry
		} else {
			t.pace.succeeded()
			t.limit = min(2*t.limit, store.StatsLimit)
		}
		for rested := time.Duration(0); rested == 0 || rested < statsIdle && !t.rowsChanged.Load(); rested += rest {
			if !sleep(ctx, rest) {
				return
			}
		}
	}
}

// countOnce counts. A count that reached its limit is only a lower bound.
func (t *stats) countOnce(ctx context.Context, paused []sink.Place) error {
	t.rowsChanged.Store(false)
	counted, err := t.count(ctx, t.limit, paused)
	if err != nil {
		t.rowsChanged.Store(true)
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range []struct{ counted, before *int }{{&counted.Deferred, &t.counted.Deferred}, {&counted.Dead, &t.counted.Dead}} {
		if *n.counted >= t.limit {
			*n.counted = max(*n.counted, *n.before)
		}
	}
	t.counted = counted
	return nil
}

func (t *stats) snapshot() store.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counted
}
