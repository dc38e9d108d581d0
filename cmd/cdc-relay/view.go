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

func (v *view) snapshot() ops.Snapshot {
	s := v.stream.Snapshot()
	out := ops.Snapshot{Phase: ops.Phase(s.Phase), Why: s.Why, Since: s.Since, Slot: opsSlot(v.slot, s.Slot)}
	out.Sink = sinkState(v.sink)
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
	out.WaitingEvents, out.UnreportedConfirmed, out.HeldTotal = l.Waiting, l.ConfirmedAbove, l.HeldTotal
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
