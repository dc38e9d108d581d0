// The running relay as one value, and its snapshot: the admin server, metrics and systemd read
// their state from it.

package main

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/admin"
	"github.com/cdc-relay/cdc-relay/internal/ops/console"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retry"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/tracing"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// process is the running relay. It combines the snapshots of its parts into one.
type process struct {
	slot      string
	retention string // retention.mode
	build     command.Build
	started   time.Time
	metrics   *metrics.Metrics
	reporter  *ops.Heartbeat
	watchdog  watchdog

	check  func(context.Context) (any, error)
	source source.Config
	driver *sink.Driver
	sink   sink.Opened
	tracer *tracing.Tracer // nil when events are not traced
	recent *wiring.RecentLog
	past   ops.History
	stream *replication.Stream
	line   atomic.Pointer[term]   // of the newest term; nil before the first term
	ended  atomic.Pointer[ending] // nil while it relays

	reached atomic.Bool // the broker was reached at least once
	course  ops.Course
	others  ops.Courses // for the server's other slots
}

// reporterTimeout is how long the reporter, which beats every second, may be silent while there is
// a session.
const reporterTimeout = 15 * time.Second

// maxPaused is how many paused destinations the status names.
const maxPaused = 20

func newProcess(c *config.Config, b command.Build, recent *wiring.RecentLog) *process {
	v := &process{slot: c.Source.Slot, retention: c.Retention.Mode, driver: c.Sink.Driver, recent: recent, build: b, started: time.Now(), metrics: metrics.New(b.Version, b.Commit, runtime.Version()), watchdog: newWatchdog(watchdogTimeout)}
	v.reporter = ops.NewHeartbeat("the reporter", reporterTimeout, func() time.Time {
		if snap := v.stream.Snapshot(); v.ended.Load() == nil && snap.Phase == slot.Streaming {
			return snap.Since
		}
		return time.Time{}
	})
	return v
}

func (v *process) adminConfig(c *config.Config, log *zap.Logger) admin.Config {
	out := admin.Config{
		Listen: c.Admin.Listen, MetricsListen: c.Admin.MetricsListen, Socket: c.Admin.Socket,
		TLS:     admin.TLSFiles{Cert: c.Admin.TLS.Cert, Key: c.Admin.TLS.Key, CA: c.Admin.TLS.CA},
		Version: v.build.Version, StartedAt: v.started, Console: console.Handler(),
		Metrics: v.metrics, Snapshot: v.snapshot, Heartbeats: append(v.watchdog.all(), v.reporter), RecentLog: v.recent.Lines, History: &v.past, Log: log,
	}
	operators := dlq.New(v.stream.Pool(), v.slot)
	operators.OnDeadLetter = c.DeadLetters.OnDeadLetter
	out.API = admin.API{
		Operators: operators, Outboxes: wiring.Outboxes(c), ShowPayloads: c.Admin.ShowPayloads, Check: v.check,
		Config: func() any { return c.Entries() },
		CountResend: func(ctx context.Context, r *dlq.Resend, dryRun bool) (admin.Counted, error) {
			found, err := repair.CountResend(ctx, v.source, v.stream.Pool(), r, wiring.Ordering(c).Scope(), dryRun)
			return admin.Counted{Rows: found.Recovered, Order: found.Order, Unknown: found.Unknown, Notes: append([]string{}, found.Named...)}, err
		},
	}
	for i := range c.Admin.Tokens {
		t := &c.Admin.Tokens[i]
		out.Tokens = append(out.Tokens, admin.Token{Name: t.Name, Operate: t.Role == config.RoleOperate, Read: t.Read})
	}
	return out
}

func (v *process) snapshot() ops.Snapshot {
	s := v.stream.Snapshot()
	out := ops.Snapshot{Phase: ops.Phase(s.Phase), Why: s.Why, Since: s.Since, Leader: wiring.Relay(s.Leader), Standbys: wiring.Relays(s.Standbys), Slot: wiring.SlotSnapshot(v.slot, s.Slot)}
	out.WaitingForStandby, out.RetentionMode = s.WaitingForStandby, v.retention
	out.OtherTotal, out.TableBytes = s.OtherTotal, s.TableBytes
	out.Unheld, out.UnheldAt = wiring.UnheldSlots(s.Unheld), s.UnheldAt
	out.HeldBy = wiring.OpenTransactions(s.HeldBy)
	for _, h := range s.Hosts {
		out.Hosts = append(out.Hosts, ops.HostSlot{Host: h.Host, Synced: h.Synced})
	}
	for _, other := range s.OtherSlots {
		out.OtherSlots = append(out.OtherSlots, wiring.SlotSnapshot(other.Name, other))
	}
	v.others.SeeSlots(out.OtherSlots)
	var pausedBySink []ops.Paused
	out.Sink, pausedBySink = wiring.SinkState(v.driver, v.sink)
	if out.Sink.Up { // the status of a sink without connections is the only sign that it is up
		v.reached.Store(true)
	}
	out.Sink.WasUp = v.reached.Load()
	out.Sink.DownSince, out.Slot.LeftSeconds = v.see(out.Sink.Up, s.Slot)
	if l := v.line.Load(); l != nil && s.Phase != slot.Standby {
		rows := l.retryTable.Snapshot()
		addLine(&out, l.Snapshot(), rows.Stats.Waiting)
		out.Settled = l.Watermark().LSN
		addRetryTable(&out, rows)
		if l.guard != nil {
			addGuard(&out, l.guard.Snapshot())
		}
		if l.retention != nil {
			out.Unsent, out.OpenGaps, out.UnsentAt = l.retention.Unsent(), l.retention.OpenGaps(), l.retention.CountedAt()
		}
		if l.retention != nil && l.retention.Deletes() {
			now := ops.Retention(l.retention.Snapshot())
			out.Retention = &now
		}
	}
	addPaused(&out, pausedBySink)
	if e := v.ended.Load(); e != nil {
		e.show(&out)
	}
	return out
}

// beat is called by the reporter every second. What it sees dates an outage of the broker and
// measures the slot's pace, also when nobody asks for the status meanwhile.
func (v *process) beat() {
	v.reporter.Beat()
	v.see(v.sink.Status().Up, v.stream.Snapshot().Slot)
}

// erased forgets what is in memory of an event whose contents were removed.
func (v *process) erased() {
	v.recent.ForgetEvents()
	v.past.Forget()
}

func (v *process) see(up bool, s slot.SlotSeen) (downSince time.Time, leftSeconds *float64) {
	downSince = v.course.SeeBroker(up, time.Now())
	if !s.Checked.IsZero() {
		leftSeconds = v.course.SeeSlot(s.Checked, s.SafeWALBytes)
	}
	return downSince, leftSeconds
}

func addLine(out *ops.Snapshot, l relay.Snapshot, waiting map[sink.Place]dlq.WaitingRows) {
	out.InFlightEvents, out.InFlightBytes, out.OldestUnsettled = l.Events, l.Bytes, l.OldestCommit
	out.WaitingEvents, out.UnreportedConfirmed, out.WaitingKeys = l.Waiting, l.ConfirmedAbove, l.WaitingGroups
	out.Paused = wiring.Paused(l.Paused, waiting)
}

// addPaused adds destinations that only the sink knows: events in a call wait for their answer, and
// no rejection has blamed the destination yet. The longest pauses come first.
func addPaused(out *ops.Snapshot, pausedBySink []ops.Paused) {
	named := make(map[string]bool, len(out.Paused))
	for _, p := range out.Paused {
		named[p.Destination] = true
	}
	for _, p := range pausedBySink {
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

func addGuard(out *ops.Snapshot, g guard.Snapshot) {
	out.Guard = &ops.Guard{Active: g.Active, Full: g.Full, Deferred: g.Deferred}
	if g.Known {
		out.Guard.Left = &g.Left
	}
}

func addRetryTable(out *ops.Snapshot, s retry.Snapshot) {
	t := s.Stats
	out.RetryTable = ops.RetryTable{
		Counted: t.At, Deferred: t.Deferred, OldestDeferred: t.OldestDeferred, Dead: t.Dead, OldestDead: t.OldestDead, Bytes: t.Bytes,
		Queued: s.Queued, Feeding: s.InFlight, RefusedTotal: s.RefusedAll,
	}
	for _, r := range s.Refused {
		out.RetryTable.Refused = append(out.RetryTable.Refused, ops.RefusedRow{
			ID: r.ID, Position: r.Position.String(), Error: r.Err, Since: r.Since, Behind: r.Behind,
		})
	}
}

// watchdog has a heartbeat for each loop that /healthz watches in addition to the reporter. They
// only query the database, each query with a timeout on our side, so whatever the database does
// they make progress. Operators' jobs and the mirror are not among them, because no event waits for
// them. Neither are the reader and the lanes: the reader waits for room in the in-flight budget and
// a lane for the broker, without a bound, so waiting does not mean that they are stuck.
type watchdog struct {
	monitor, flushLimit, writer, feeder, stats *ops.Heartbeat
}

// watchdogTimeout is how long a loop may take for one piece of work: a few statements of at most
// 20 s each, perhaps after another that has to end first, or one with a row of up to 1 GiB, which
// has four minutes. A false alarm restarts a healthy relay, which is worse than a late alarm.
const watchdogTimeout = 5 * time.Minute

func newWatchdog(bound time.Duration) watchdog {
	return watchdog{
		monitor:    ops.NewWork("the check of slot, publication and tables", bound),
		flushLimit: ops.NewWork("the raise of the flush limit", bound),
		writer:     ops.NewWork("the writer of deferred events", bound),
		feeder:     ops.NewWork("the feeder of deferred events", bound),
		stats:      ops.NewWork("the count of deferred events", bound),
	}
}

func (w *watchdog) all() []*ops.Heartbeat {
	return []*ops.Heartbeat{w.monitor, w.flushLimit, w.writer, w.feeder, w.stats}
}
