// The loops that /healthz watches.

package main

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

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
