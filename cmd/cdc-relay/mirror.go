package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/retry"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// operators is what a leader does for them, beside the siding: bulk jobs, the purge by age, the mirror of dead letters.
type operators struct {
	leader *dlq.Leader
	mirror *dlq.Mirror // nil: none is configured
	feeds  feeds
	done   chan struct{} // of the mirror
}

func newOperators(c *config.Config, v *view, columns []string, t replication.Term, store retry.Store, log *zap.Logger) *operators {
	o := &operators{done: make(chan struct{}), feeds: feeds{sink: v.sink, out: map[*relay.Fed]*batch{}}}
	o.leader = dlq.NewLeader(dlq.LeaderConfig{
		DB: t.Pool, Slot: c.Source.Slot, SystemID: t.SystemID, Epoch: t.Epoch, Keep: c.DeadLetters.Keep, Log: log,
		Expire: func(ctx context.Context) (int, error) { return store.Expire(ctx, c.DeadLetters.Keep, expireRows) },
	})
	if m := c.DeadLetters.Mirror; m.IsSet() {
		o.mirror = dlq.NewMirror(dlq.MirrorConfig{
			Store: &dlq.MirrorPostgres{DB: t.Pool, Slot: c.Source.Slot, SystemID: t.SystemID, Epoch: t.Epoch},
			Route: mirrorRoute(m), Columns: len(columns),
			Publish: o.feeds.publish, Mirrored: v.metrics.Mirrored, Failed: v.metrics.MirrorFailed, Log: log,
		})
	}
	return o
}

// hooks are the metrics' of the line, without the mirror's copies: those are counted on their own.
func (o *operators) hooks(m *ops.Metrics) relay.Hooks {
	h := relay.Hooks{Confirmed: m.Confirmed, Rejected: m.Rejected, Failed: m.Failed, Unavailable: m.Unavailable}
	if o.mirror == nil {
		return h
	}
	h.Confirmed = func(lane int, events []*outbox.Event, at time.Time) {
		if slices.ContainsFunc(events, o.mirror.IsMirrored) {
			events = slices.DeleteFunc(slices.Clone(events), o.mirror.IsMirrored)
		}
		m.Confirmed(lane, events, at)
	}
	h.Rejected = func(ev *outbox.Event, f *sink.Fault, attempt int) {
		if !o.mirror.IsMirrored(ev) {
			m.Rejected(ev, f, attempt)
		}
	}
	return h
}

// expireRows is how many rows a purge by age changes at once.
const expireRows = 1000

func mirrorRoute(m config.Mirror) outbox.Route {
	if m.Topic != "" {
		return outbox.Route{Name: []byte(m.Topic)}
	}
	return outbox.Route{Name: append([]byte{}, m.Exchange...), RoutingKey: append([]byte{}, m.RoutingKey...)}
}

// stop has the mirror publish nothing new; wait gives what is on its way a moment to be noted.
func (o *operators) stop() {
	if o.mirror != nil {
		o.mirror.Stop()
	}
}

func (o *operators) wait(ctx context.Context) {
	if o.mirror == nil {
		return
	}
	select {
	case <-o.done:
	case <-time.After(mirrorPatience):
	case <-ctx.Done():
	}
}

// mirrorPatience bounds what a stop waits for the mirror: what is not noted is mirrored once more.
const mirrorPatience = 2 * time.Second

func (o *operators) runMirror(ctx context.Context) error {
	defer close(o.done)
	if o.mirror == nil {
		return nil
	}
	return o.mirror.Run(ctx)
}

// siding is the siding as the line sees it: rows that were the mirror's come back to the mirror.
type siding struct {
	*retry.Siding
	feeds *feeds
}

// Fed implements relay.Siding.
func (s siding) Fed(rows []*relay.Fed) {
	if rows = s.feeds.take(rows); len(rows) > 0 {
		s.Siding.Fed(rows)
	}
}

// feeds takes copies of letters through the line's lanes.
type feeds struct {
	sink sink.Sink
	line interface{ Offer(rows []*relay.Fed) }

	mu  sync.Mutex
	out map[*relay.Fed]*batch // that are in a lane
}

// batch is what was given to publish together.
type batch struct {
	outcomes []sink.Outcome
	index    map[*relay.Fed]int
	left     int
	done     chan struct{} // closed when none is left
}

// publish is dlq.MirrorConfig.Publish.
func (f *feeds) publish(ctx context.Context, events []*outbox.Event) []sink.Outcome {
	b := &batch{outcomes: make([]sink.Outcome, len(events)), index: map[*relay.Fed]int{}, done: make(chan struct{})}
	var rows []*relay.Fed
	for i, ev := range events {
		place, ok := f.sink.Place(ev)
		if !ok { // nothing is known of the topic yet: it is offered again
			b.outcomes[i].State = sink.Unsent
			continue
		}
		row := &relay.Fed{Event: *ev, Place: place}
		b.index[row] = i
		rows = append(rows, row)
	}
	if b.left = len(rows); b.left == 0 {
		return b.outcomes
	}
	f.mu.Lock()
	for _, row := range rows {
		f.out[row] = b
	}
	f.mu.Unlock()
	f.line.Offer(rows)
	select {
	case <-b.done:
		return b.outcomes
	case <-ctx.Done():
		return make([]sink.Outcome, len(events)) // unknown: the lanes may write into the others still
	}
}

// take takes back what is the mirror's, and returns the others.
func (f *feeds) take(rows []*relay.Fed) (others []*relay.Fed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.out) == 0 {
		return rows
	}
	for _, row := range rows {
		b := f.out[row]
		if b == nil {
			others = append(others, row)
			continue
		}
		delete(f.out, row)
		b.outcomes[b.index[row]] = row.Outcome
		if b.left--; b.left == 0 {
			close(b.done)
		}
	}
	return others
}
