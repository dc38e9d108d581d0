// The gauges: metrics that are read from a Snapshot at every scrape, and not counted.

package metrics

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// gauge describes one metric that is read from an F: the state of the relay, or a slot. A new
// metric is a row of a list below and needs nothing else in this package. The names are a contract
// with dashboards, so rows are only ever added.
type gauge[F any] struct {
	name, help string
	label      string // the name of the label; "" means that there is none
	values     func(from F, send func(value float64, label string))
}

// one makes a gauge without a label that always has a value.
func one[F any](name, help string, value func(F) float64) gauge[F] {
	return gauge[F]{name, help, "", func(from F, send func(float64, string)) { send(value(from), "") }}
}

// state is what the gauges of a relay are read from.
type state struct {
	*ops.Snapshot
	now         time.Time
	lastConfirm int64 // Unix nanoseconds, 0 before the first confirm
}

// ofEvery are the gauges that every relay reports.
var ofEvery = []gauge[state]{
	{"cdc_relay_last_confirm_timestamp_seconds", "Unix time of the broker's last confirm; absent before the first.", "", func(s state, send func(float64, string)) {
		if s.lastConfirm != 0 {
			send(float64(s.lastConfirm)/1e9, "")
		}
	}},
	one("cdc_relay_sink_up", "1 when every connection to the broker is up and not blocked.", func(s state) float64 { return zeroOne(s.Sink.Up) }),
	one("cdc_relay_sink_pending_confirms", "Messages published and not yet answered by the broker.", func(s state) float64 { return float64(s.Sink.PendingConfirms) }),
	one("cdc_relay_sink_ignored_returns_total", "Events that no queue has got and that count as delivered, by sink.rabbitmq.unroutable.", func(s state) float64 { return float64(s.Sink.Ignored) }),
	one("cdc_relay_sink_found_total", "Events that Kafka had from before the start, and that were not sent again.", func(s state) float64 { return float64(s.Sink.Found) }),
	one("cdc_relay_sink_connections", "Connections to the broker that are up.", func(s state) float64 { return float64(s.Sink.Connections) }),
	one("cdc_relay_sink_channels", "Channels to the broker that are open.", func(s state) float64 { return float64(s.Sink.Channels) }),
	one("cdc_relay_stream_up", "1 while the replication stream runs.", func(s state) float64 { return zeroOne(s.Phase == ops.Streaming) }),
	one("cdc_relay_leader", "1 while this relay leads, that is, reads the slot.", func(s state) float64 { return zeroOne(s.Leads()) }),
	one("cdc_relay_standby", "1 while another relay leads and this one waits to replace it.", func(s state) float64 { return zeroOne(s.Phase == ops.Standby) }),
	{"cdc_relay_stopped", "1 when the relay has stopped for this reason and stays up to report it.", "reason", func(s state, send func(float64, string)) {
		if s.Phase == ops.Stopped {
			send(1, s.Reason)
		}
	}},
	{"cdc_relay_outbox_table_bytes", "Size of the outbox tables on disk, with their indexes and partitions; absent before it was asked for.", "", func(s state, send func(float64, string)) {
		if s.TableBytes != nil {
			send(float64(*s.TableBytes), "")
		}
	}},
}

// ofLeader are the gauges that only the leader reports. Another relay, even a former leader, knows
// an older state of the same events, and they would be counted twice.
var ofLeader = []gauge[state]{
	one("cdc_relay_backlog_events", "Events read from the WAL and not yet settled, plus the deferred ones. Only the leader reports this and other counts of pending events.", func(s state) float64 {
		return float64(s.InFlightEvents + s.WaitingEvents + s.RetryTable.Deferred)
	}),
	one("cdc_relay_in_flight_events", "Events in the in-flight budget.", func(s state) float64 { return float64(s.InFlightEvents) }),
	one("cdc_relay_in_flight_bytes", "Bytes of the events in the in-flight budget.", func(s state) float64 { return float64(s.InFlightBytes) }),
	one("cdc_relay_oldest_unsettled_seconds", "Age of the commit of the oldest event that is read and not settled; 0 when there is none.", func(s state) float64 { return age(s.OldestUnsettled, s.now) }),
	one("cdc_relay_destinations_paused", "Destinations that refuse: their events are deferred unsent.", func(s state) float64 { return float64(s.PausedTotal) }),
	one("cdc_relay_waiting_keys", "Keys, each for one exchange or topic, whose later events wait behind a deferred one.", func(s state) float64 { return float64(s.WaitingKeys) }),
	one("cdc_relay_refused_rows", "Events that are to be deferred and whose row the database refuses: they block their key and keep WAL.", func(s state) float64 { return float64(s.RetryTable.RefusedTotal) }),
	counted("cdc_relay_deferred_events", "Events in the retry table; absent before it was counted.", func(s state) float64 { return float64(s.RetryTable.Deferred) }),
	counted("cdc_relay_deferred_oldest_age_seconds", "Age of the commit of the oldest deferred event; 0 when there is none.", func(s state) float64 { return age(s.RetryTable.OldestDeferred, s.now) }),
	counted("cdc_relay_retry_table_bytes", "Size of the retry table and the dead letters on disk, with their indexes, of all slots; absent before it was asked for.", func(s state) float64 { return float64(s.RetryTable.Bytes) }),
	counted("cdc_relay_dead_letters_open", "Dead letters that are open; absent before they were counted.", func(s state) float64 { return float64(s.RetryTable.Dead) }),
	counted("cdc_relay_dead_letters_oldest_age_seconds", "Time since the oldest open dead letter died; 0 when there is none.", func(s state) float64 { return age(s.RetryTable.OldestDead, s.now) }),
	guarded("cdc_relay_guard_active", "1 while the disk guard defers events because the broker is away; absent when no guard is configured.", func(g *ops.Guard) bool { return g.Active }),
	guarded("cdc_relay_guard_full", "1 while the disk guard defers nothing more because guard.max_bytes is reached; absent when no guard is configured.", func(g *ops.Guard) bool { return g.Full }),
	{"cdc_relay_retention_behind_seconds", "For how long the oldest delivered row that may be deleted has waited for that; 0 when none waits, absent without retention.", "", func(s state, send func(float64, string)) {
		if s.Retention != nil {
			send(s.Retention.Behind(s.now).Seconds(), "")
		}
	}},
	{"cdc_relay_unsent_rows", "Rows of an outbox table that the slot is past and that are not known to be sent, deferred or dead letters, at most 10,000; absent before they were counted.", "table", func(s state, send func(float64, string)) {
		for table, rows := range s.Unsent {
			send(float64(rows), table)
		}
	}},
	{"cdc_relay_slots_unheld", "Other slots of relays of this database that nobody holds and that have deferred events, open dead letters or WAL; absent before they were asked for.", "", func(s state, send func(float64, string)) {
		if s.Unheld != nil {
			send(float64(len(s.Unheld)), "")
		}
	}},
	{"cdc_relay_slot_synced", "1 when this other host of source.url has the relay's failover slot, synced and ready for a promotion; 0 also when it does not answer. Only the leader reports it.", "host", func(s state, send func(float64, string)) {
		for _, h := range s.Hosts {
			send(zeroOne(h.Synced), h.Host)
		}
	}},
}

// counted makes a gauge of the retry table. It has a value once the table was counted.
func counted(name, help string, value func(state) float64) gauge[state] {
	return gauge[state]{name, help, "", func(s state, send func(float64, string)) {
		if !s.RetryTable.Counted.IsZero() {
			send(value(s), "")
		}
	}}
}

// guarded makes a gauge of the disk guard. It has a value only when a guard is configured.
func guarded(name, help string, value func(*ops.Guard) bool) gauge[state] {
	return gauge[state]{name, help, "", func(s state, send func(float64, string)) {
		if s.Guard != nil {
			send(zeroOne(value(s.Guard)), "")
		}
	}}
}

// ofSlot are the gauges of each logical slot of the server. The label slot has the slot's name.
var ofSlot = []gauge[*ops.SlotItem]{
	one("cdc_relay_slot_own", "1 for the relay's own slot, 0 for the others of the server.", func(i *ops.SlotItem) float64 { return zeroOne(i.Own) }),
	{"cdc_relay_slot_lag_seconds", "Of the relay's own slot, the age of the oldest commit that is not settled (while there is no stream, the time since it ended; absent while another relay leads). Of another's, the time since WAL was seen that it has not confirmed.", "", func(i *ops.SlotItem, send func(float64, string)) {
		if i.LagSeconds != nil {
			send(*i.LagSeconds, "")
		}
	}},
	looked("cdc_relay_slot_waiting_for_standby", "1 while a standby of synchronized_standby_slots holds back delivery from the relay's own slot; only of a failover slot.", "", func(i *ops.SlotItem, send func(float64, string)) {
		if i.Own && i.Failover {
			send(zeroOne(i.WaitingForStandby), "")
		}
	}),
	looked("cdc_relay_slot_lag_bytes", "WAL between the slot's confirmed position and the server's.", "", func(i *ops.SlotItem, send func(float64, string)) { send(float64(i.LagBytes), "") }),
	looked("cdc_relay_slot_retained_bytes", "WAL that the server keeps for the slot.", "", func(i *ops.SlotItem, send func(float64, string)) { send(float64(i.RetainedBytes), "") }),
	looked("cdc_relay_slot_safe_wal_bytes", "WAL that can still be written before the slot may be lost; absent when it is unlimited.", "", func(i *ops.SlotItem, send func(float64, string)) {
		if i.SafeWALBytes != nil {
			send(float64(*i.SafeWALBytes), "")
		}
	}),
	looked("cdc_relay_slot_active", "1 while a process reads the slot.", "", func(i *ops.SlotItem, send func(float64, string)) { send(zeroOne(i.Active), "") }),
	looked("cdc_relay_slot_wal_status", "1 for the slot's present wal_status, 0 for the others.", "status", func(i *ops.SlotItem, send func(float64, string)) {
		for _, status := range []string{"reserved", "extended", "unreserved", "lost"} {
			send(zeroOne(i.WALStatus == status), status)
		}
	}),
	looked("cdc_relay_slot_spilled_bytes_total", "Bytes of transactions that the server's decoding wrote to disk.", "", func(i *ops.SlotItem, send func(float64, string)) { send(float64(i.SpilledBytes), "") }),
}

// looked makes a gauge of a slot. It has a value only when the slot was read within the last
// minute.
func looked(name, help, label string, values func(*ops.SlotItem, func(float64, string))) gauge[*ops.SlotItem] {
	return gauge[*ops.SlotItem]{name, help, label, func(i *ops.SlotItem, send func(float64, string)) {
		if !i.CheckedAt.IsZero() {
			values(i, send)
		}
	}}
}

// gauges is the collector of all gauges. It takes one Snapshot per scrape.
type gauges struct {
	metrics  *Metrics
	snapshot func() ops.Snapshot
	now      func() time.Time
}

var _ prometheus.Collector = (*gauges)(nil)

// descs returns the descriptions by name. They are made at the first scrape.
var descs = sync.OnceValue(func() map[string]*prometheus.Desc {
	all := map[string]*prometheus.Desc{}
	for _, g := range slices.Concat(ofEvery, ofLeader) {
		all[g.name] = prometheus.NewDesc(g.name, g.help, labels(g.label), nil)
	}
	for _, g := range ofSlot {
		all[g.name] = prometheus.NewDesc(g.name, g.help, append([]string{"slot"}, labels(g.label)...), nil)
	}
	return all
})

func labels(one string) []string {
	if one == "" {
		return nil
	}
	return []string{one}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range descs() {
		out <- d
	}
}

// Collect implements prometheus.Collector: it takes a Snapshot and sends the value of every gauge.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	s := g.snapshot()
	from := state{&s, g.now(), g.metrics.lastConfirmed.Load()}
	for _, d := range ofEvery {
		d.collect(from, out)
	}
	if s.Leads() {
		for _, d := range ofLeader {
			d.collect(from, out)
		}
	}
	for _, slot := range s.Slots(from.now) {
		for _, d := range ofSlot {
			d.collect(&slot, out, slot.Name)
		}
	}
}

// collect sends the values of one gauge. A name that ends in _total is sent as a counter.
func (g *gauge[F]) collect(from F, out chan<- prometheus.Metric, slot ...string) {
	kind := prometheus.GaugeValue
	if strings.HasSuffix(g.name, "_total") {
		kind = prometheus.CounterValue
	}
	g.values(from, func(value float64, label string) {
		values := slot
		if g.label != "" {
			values = append(slices.Clone(slot), label)
		}
		out <- prometheus.MustNewConstMetric(descs()[g.name], kind, value, values...)
	})
}

// age returns the seconds since at. It is 0 for the zero time and for a time that is ahead, which
// may be from another machine's clock.
func age(at, now time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at).Seconds())
}

func zeroOne(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
