package main

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// watchdog are the loops besides the reporter that /healthz watches: those that only query the
// database, each query with a timeout of its own on our side. Whatever the database does, they come
// round. The reader waits for room in the in-flight budget and a lane waits for the broker, for as
// long as these like, so of them nobody can say that they are stuck.
type watchdog struct {
	monitor, flushLimit, writer, feeder, stats, jobs, mirror *ops.Heartbeat
}

// watchdogTimeout is how long one of them may take for a thing that it has begun. That is a few
// statements, of 20 s each at the most, perhaps behind another that has to end first. A false alarm
// restarts a healthy relay, which is worse than a late one.
const watchdogTimeout = 5 * time.Minute

func newWatchdog(bound time.Duration) watchdog {
	return watchdog{
		monitor:    ops.NewWork("the check of slot, publication and tables", bound),
		flushLimit: ops.NewWork("the raise of the flush limit", bound),
		writer:     ops.NewWork("the writer of deferred events", bound),
		feeder:     ops.NewWork("the feeder of deferred events", bound),
		stats:      ops.NewWork("the count of deferred events", bound),
		jobs:       ops.NewWork("operators' jobs and the purge by age", bound),
		mirror:     ops.NewWork("the mirror of dead letters", bound),
	}
}

func (w *watchdog) all() []*ops.Heartbeat {
	return []*ops.Heartbeat{w.monitor, w.flushLimit, w.writer, w.feeder, w.stats, w.jobs, w.mirror}
}
