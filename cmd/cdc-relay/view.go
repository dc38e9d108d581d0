package main

import (
	"runtime"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
)

// view is what the admin server sees of the running parts: it gathers their snapshots into one.
type view struct {
	slot     string
	build    build
	started  time.Time
	metrics  *ops.Metrics
	reporter *ops.Heartbeat

	sink   sink.Sink
	stream *replication.Stream
	line   atomic.Pointer[relay.Line] // of the newest term; nil before the first
	ended  atomic.Pointer[ending]     // nil while it relays
}

// reporterBound is how long the reporter, which beats every second, may be silent while there is a session.
const reporterBound = 15 * time.Second

// maxPaused is how many paused destinations the status names.
const maxPaused = 20

func newView(c *config.Config) *view {
	b := thisBuild()
	v := &view{slot: c.Source.Slot, build: b, started: time.Now(), metrics: ops.NewMetrics(b.Version, b.Commit, runtime.Version())}
	v.reporter = ops.NewHeartbeat("the reporter", reporterBound, func() time.Time {
		if snap := v.stream.Snapshot(); v.ended.Load() == nil && snap.Phase == replication.Streaming {
			return snap.Since
		}
		return time.Time{}
	})
	return v
}

func (v *view) adminConfig(c *config.Config, log *zap.Logger) ops.Config {
	out := ops.Config{
		Listen: c.Admin.Listen, Version: v.build.Version, StartedAt: v.started,
		Metrics: v.metrics, Snapshot: v.snapshot, Heartbeats: []*ops.Heartbeat{v.reporter}, Log: log,
	}
	if c.Admin.Token.IsSet() {
		out.Token = c.Admin.Token.Read
	}
	if c.Admin.ReadToken.IsSet() {
		out.ReadToken = c.Admin.ReadToken.Read
	}
	return out
}

// phases has the stream's phases in the admin server's words, which are the same.
var phases = map[replication.Phase]ops.Phase{
	replication.Starting: ops.Starting, replication.Waiting: ops.Waiting, replication.Standby: ops.Standby,
	replication.Streaming: ops.Streaming, replication.Stopping: ops.Stopping,
}

func (v *view) snapshot() ops.Snapshot {
	s := v.stream.Snapshot()
	out := ops.Snapshot{Phase: phases[s.Phase], Why: s.Why, Since: s.Since, Slot: opsSlot(v.slot, s.Slot)}
	out.Sink.Up = true
	if r, ok := v.sink.(*rabbit.Sink); ok {
		out.Sink.Up, out.Sink.Why = r.Up()
		stats := r.Stats()
		out.Sink.Connections, out.Sink.Channels, out.Sink.PendingConfirms = stats.Connections, stats.Channels, stats.PendingConfirms
		out.Sink.PausedTotal = len(stats.Paused)
		for _, p := range stats.Paused[:min(len(stats.Paused), maxPaused)] {
			out.Sink.Paused = append(out.Sink.Paused, ops.Paused{Destination: p.Destination, Reason: string(p.Reason), Words: p.Words, Since: p.Since})
		}
	}
	if l := v.line.Load(); l != nil && s.Phase != replication.Standby {
		addLine(&out, l.Snapshot())
	}
	if e := v.ended.Load(); e != nil {
		e.show(&out)
	}
	return out
}

func addLine(out *ops.Snapshot, l relay.Snapshot) {
	out.InFlightEvents, out.InFlightBytes, out.OldestUnsettled = l.Events, l.Bytes, l.OldestCommit
	out.UnreportedConfirmed, out.HeldTotal = l.ConfirmedAbove, l.HeldTotal
	for _, h := range l.Held {
		held := ops.Held{
			ID: h.ID, Position: h.Position.String(), Lane: h.Lane, Destination: h.Destination, Class: h.Class.String(),
			Reason: string(h.Reason), Words: h.Fault, Attempts: h.Attempts, Since: h.Since,
		}
		if !h.NextAttempt.IsZero() {
			next := h.NextAttempt
			held.NextAttempt = &next
		}
		out.Held = append(out.Held, held)
	}
}

func opsSlot(name string, s replication.Slot) ops.Slot {
	return ops.Slot{
		Name: name, Checked: s.Checked, ConfirmedFlush: s.ConfirmedFlush, Restart: s.Restart, Current: s.Current,
		Active: s.Active, WALStatus: s.WALStatus, SafeWALBytes: s.SafeWALBytes, SpilledBytes: s.SpilledBytes,
	}
}
