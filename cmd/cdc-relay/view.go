package main

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/admin"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/retry"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/tracing"
)

// view is what the admin server sees of the running parts: it gathers their snapshots into one.
type view struct {
	slot     string
	build    build
	started  time.Time
	metrics  *metrics.Metrics
	reporter *ops.Heartbeat
	works    works

	check  func(context.Context) ([]ops.Finding, error)
	sink   sink.Sink
	tracer *tracing.Tracer // nil: events are not traced
	stream *replication.Stream
	line   atomic.Pointer[line]   // of the newest term; nil before the first
	ended  atomic.Pointer[ending] // nil while it relays
}

// reporterBound is how long the reporter, which beats every second, may be silent while there is a session.
const reporterBound = 15 * time.Second

// maxPaused is how many paused destinations the status names.
const maxPaused = 20

func newView(c *config.Config) *view {
	b := thisBuild()
	v := &view{slot: c.Source.Slot, build: b, started: time.Now(), metrics: metrics.New(b.Version, b.Commit, runtime.Version()), works: newWorks(workBound)}
	v.reporter = ops.NewHeartbeat("the reporter", reporterBound, func() time.Time {
		if snap := v.stream.Snapshot(); v.ended.Load() == nil && snap.Phase == replication.Streaming {
			return snap.Since
		}
		return time.Time{}
	})
	return v
}

func (v *view) adminConfig(c *config.Config, log *zap.Logger) admin.Config {
	out := admin.Config{
		Listen: c.Admin.Listen, Version: v.build.Version, StartedAt: v.started,
		Metrics: v.metrics, Snapshot: v.snapshot, Heartbeats: append(v.works.all(), v.reporter), Log: log,
	}
	out.API = admin.API{Desk: dlq.New(v.stream.Pool(), v.slot), Outboxes: outboxes(c), ShowPayloads: c.Admin.ShowPayloads, Check: v.check}
	if c.Admin.Token.IsSet() {
		out.Token = c.Admin.Token.Read
	}
	if c.Admin.ReadToken.IsSet() {
		out.ReadToken = c.Admin.ReadToken.Read
	}
	return out
}

func (v *view) snapshot() ops.Snapshot {
	s := v.stream.Snapshot()
	out := ops.Snapshot{Phase: ops.Phase(s.Phase), Why: s.Why, Since: s.Since, Slot: opsSlot(v.slot, s.Slot)}
	out.OtherTotal, out.TableBytes = s.OtherTotal, s.TableBytes
	for _, other := range s.OtherSlots {
		out.OtherSlots = append(out.OtherSlots, opsSlot(other.Name, other))
	}
	var accused []ops.Paused
	out.Sink, accused = sinkState(v.sink)
	if l := v.line.Load(); l != nil && s.Phase != replication.Standby {
		addLine(&out, l.Snapshot())
		addSiding(&out, l.siding.Snapshot())
	}
	addPaused(&out, accused)
	if e := v.ended.Load(); e != nil {
		e.show(&out)
	}
	return out
}

func addLine(out *ops.Snapshot, l relay.Snapshot) {
	out.InFlightEvents, out.InFlightBytes, out.OldestUnsettled = l.Events, l.Bytes, l.OldestCommit
	out.WaitingEvents, out.UnreportedConfirmed, out.WaitingKeys = l.Waiting, l.ConfirmedAbove, l.HeldChains
	for _, p := range l.Paused {
		out.Paused = append(out.Paused, ops.Paused{Destination: p.Destination, Reason: string(p.Reason), Error: p.Words, Since: p.Since})
	}
}

// addPaused adds what the sink sends nothing to, and the line does not know to be paused: a line forgets it with its term, and
// opens at the confirm of a row, which may come before the sink looks again. The longest come first.
func addPaused(out *ops.Snapshot, accused []ops.Paused) {
	named := make(map[string]bool, len(out.Paused))
	for _, p := range out.Paused {
		named[p.Destination] = true
	}
	for _, p := range accused {
		if !named[p.Destination] {
			out.Paused = append(out.Paused, p)
		}
	}
	slices.SortFunc(out.Paused, func(a, b ops.Paused) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Destination, b.Destination))
	})
	out.PausedTotal = len(out.Paused)
	out.Paused = out.Paused[:min(len(out.Paused), maxPaused)]
}

func addSiding(out *ops.Snapshot, s retry.Snapshot) {
	t := s.Tally
	out.Siding = ops.Siding{
		Counted: t.At, Parked: t.Parked, OldestParked: t.OldestParked, Dead: t.Dead, OldestDead: t.OldestDead,
		Queued: s.Queued, Feeding: s.InFlight, RefusedTotal: s.RefusedAll,
	}
	for _, r := range s.Refused {
		out.Siding.Refused = append(out.Siding.Refused, ops.RefusedRow{
			ID: r.ID, Position: r.Position.String(), Error: r.Err, Since: r.Since, Behind: r.Behind,
		})
	}
}

func opsSlot(name string, s replication.Slot) ops.Slot {
	return ops.Slot{
		Name: name, Checked: s.Checked, ConfirmedFlush: s.ConfirmedFlush, Restart: s.Restart, Current: s.Current,
		Active: s.Active, WALStatus: s.WALStatus, SafeWALBytes: s.SafeWALBytes, SpilledBytes: s.SpilledBytes,
		Database: s.Database, Plugin: s.Plugin, Invalidation: s.Invalidation, BehindSince: s.BehindSince,
	}
}
