// Gauges: the state of the relay, read at every scrape.

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// gauges is a collector that takes one Snapshot per scrape.
type gauges struct {
	metrics  *Metrics
	snapshot func() ops.Snapshot
	now      func() time.Time
}

var _ prometheus.Collector = (*gauges)(nil)

var (
	backlog         = describe("outbox_backlog", "Events read from the WAL and not yet settled, plus the deferred ones. Only the leader reports this and other counts of pending events.")
	oldestUnsettled = describe("outbox_oldest_unsettled_seconds", "Age of the commit of the oldest event that is read and not settled; 0 when there is none.")
	lastConfirm     = describe("outbox_last_confirm_timestamp_seconds", "Unix time of the broker's last confirm; absent before the first.")
	inFlightEvents  = describe("outbox_in_flight_events", "Events in the in-flight budget.")
	inFlightBytes   = describe("outbox_in_flight_bytes", "Bytes of the events in the in-flight budget.")

	sinkUp          = describe("outbox_sink_up", "1 when every connection to the broker is up and not blocked.")
	sinkIgnored     = describe("outbox_sink_ignored_returns_total", "Events that no queue has got and that count as delivered, by sink.rabbitmq.unroutable.")
	sinkPending     = describe("outbox_sink_pending_confirms", "Messages published and not yet answered by the broker.")
	sinkConnections = describe("outbox_sink_connections", "Connections to the broker that are up.")
	sinkChannels    = describe("outbox_sink_channels", "Channels to the broker that are open.")

	paused         = describe("outbox_destinations_paused", "Destinations that refuse: their events are deferred unsent.")
	waitingKeys    = describe("outbox_waiting_keys", "Keys, each for one exchange or topic, whose later events wait behind a deferred one.")
	deferred       = describe("outbox_deferred_events", "Events in the retry table; absent before it was counted.")
	deferredOldest = describe("outbox_deferred_oldest_age_seconds", "Age of the commit of the oldest deferred event; 0 when there is none.")
	refusedRows    = describe("outbox_refused_rows", "Events that are to be deferred and whose row the database refuses: they block their key and keep WAL.")
	retryBytes     = describe("outbox_retry_table_bytes", "Size of the retry table and the dead letters on disk, with their indexes, of all slots; absent before it was asked for.")
	guardActive    = describe("outbox_guard_active", "1 while the disk guard defers events because the broker is away; absent when no guard is configured.")
	guardFull      = describe("outbox_guard_full", "1 while the disk guard defers nothing more because guard.max_bytes is reached; absent when no guard is configured.")
	dead           = describe("outbox_dead_letters", "Dead letters that are open; absent before they were counted.")
	deadOldest     = describe("outbox_dead_letters_oldest_age_seconds", "Time since the oldest open dead letter died; 0 when there is none.")

	retentionBehind = describe("outbox_retention_behind_seconds", "For how long the oldest delivered row that may be deleted has waited for that; 0 when none waits, absent without retention.")

	unsentRows = describe("outbox_unsent_rows", "Rows of an outbox table that the slot is past and that are not known to be sent, deferred or dead letters, at most 10,000; absent before they were counted.", "table")

	slotsUnheld = describe("outbox_slots_unheld", "Other slots of relays of this database that nobody holds and that have deferred events, open dead letters or WAL; absent before they were asked for.")

	streamUp = describe("outbox_stream_up", "1 while the replication stream runs.")
	leader   = describe("outbox_leader", "1 while this relay leads, that is, reads the slot.")
	standby  = describe("outbox_standby", "1 while another relay leads and this one waits to replace it.")
	stopped  = describe("outbox_stopped", "1 when the relay has stopped for this reason and stays up to report it.", "reason")

	tableBytes = describe("outbox_table_bytes", "Size of the outbox tables on disk, with their indexes and partitions; absent before it was asked for.")
)

// Describe sends every description.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range append([]*prometheus.Desc{
		backlog, oldestUnsettled, lastConfirm, inFlightEvents, inFlightBytes, sinkUp, sinkPending, sinkIgnored, sinkConnections, sinkChannels,
		paused, waitingKeys, deferred, deferredOldest, refusedRows, retryBytes, guardActive, guardFull, dead, deadOldest, retentionBehind, unsentRows, slotsUnheld, streamUp, leader, standby, stopped, tableBytes,
	}, slotDescs...) {
		out <- d
	}
}

// Collect sends what one Snapshot says.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	s, now := g.snapshot(), g.now()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if s.Leads() {
		collectEvents(&s, now, gauge)
		for _, h := range s.Hosts {
			gauge(slotSynced, zeroOne(h.Synced), h.Host)
		}
	}
	if last := g.metrics.lastConfirmed.Load(); last != 0 {
		gauge(lastConfirm, float64(last)/1e9)
	}
	gauge(sinkUp, zeroOne(s.Sink.Up))
	gauge(sinkPending, float64(s.Sink.PendingConfirms))
	out <- prometheus.MustNewConstMetric(sinkIgnored, prometheus.CounterValue, float64(s.Sink.Ignored))
	gauge(sinkConnections, float64(s.Sink.Connections))
	gauge(sinkChannels, float64(s.Sink.Channels))
	gauge(streamUp, zeroOne(s.Phase == ops.Streaming))
	gauge(leader, zeroOne(s.Leads()))
	gauge(standby, zeroOne(s.Phase == ops.Standby))
	if s.Phase == ops.Stopped {
		gauge(stopped, 1, s.Reason)
	}
	if s.TableBytes != nil {
		gauge(tableBytes, float64(*s.TableBytes))
	}
	for _, slot := range s.Slots(now) {
		collectSlot(&slot, out)
	}
}

// collectEvents sends what is of the leader alone. Another relay, even a former leader, knows only
// an older state: the leader counts the same events, and they would appear twice.
func collectEvents(s *ops.Snapshot, now time.Time, gauge func(*prometheus.Desc, float64, ...string)) {
	gauge(backlog, float64(s.InFlightEvents+s.WaitingEvents+s.RetryTable.Deferred))
	gauge(inFlightEvents, float64(s.InFlightEvents))
	gauge(inFlightBytes, float64(s.InFlightBytes))
	gauge(oldestUnsettled, age(s.OldestUnsettled, now))
	gauge(paused, float64(s.PausedTotal))
	gauge(waitingKeys, float64(s.WaitingKeys))
	gauge(refusedRows, float64(s.RetryTable.RefusedTotal))
	if s.Guard != nil {
		gauge(guardActive, zeroOne(s.Guard.Active))
		gauge(guardFull, zeroOne(s.Guard.Full))
	}
	if s.Retention != nil {
		gauge(retentionBehind, s.Retention.Behind(now).Seconds())
	}
	for table, rows := range s.Unsent {
		gauge(unsentRows, float64(rows), table)
	}
	if s.Unheld != nil {
		gauge(slotsUnheld, float64(len(s.Unheld)))
	}
	if s.RetryTable.Counted.IsZero() {
		return
	}
	gauge(deferred, float64(s.RetryTable.Deferred))
	gauge(deferredOldest, age(s.RetryTable.OldestDeferred, now))
	gauge(retryBytes, float64(s.RetryTable.Bytes))
	gauge(dead, float64(s.RetryTable.Dead))
	gauge(deadOldest, age(s.RetryTable.OldestDead, now))
}
