package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// scrape returns our lines of /metrics, without comments.
func scrape(t *testing.T, m *Metrics) []string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.Code != http.StatusOK {
		t.Fatalf("scrape answers %d, %v:\n%s", answer.Code, err, body)
	}
	return slices.DeleteFunc(strings.Split(string(body), "\n"), func(line string) bool { return !strings.HasPrefix(line, "cdc_relay_") })
}

func mustHave(t *testing.T, lines []string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q in\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

func mustLack(t *testing.T, lines []string, names ...string) {
	t.Helper()
	for _, name := range names {
		for _, line := range lines {
			if strings.HasPrefix(line, name) {
				t.Errorf("%q should not be there", line)
			}
		}
	}
}

func watched(snapshot ops.Snapshot) *Metrics {
	m := New("v1", "abc", "go1.26")
	m.registry.MustRegister(&gauges{metrics: m, snapshot: func() ops.Snapshot { return snapshot }, now: func() time.Time { return opstest.Noon }})
	return m
}

// The names are a contract with dashboards: this list is only ever added to.
func TestMetricNames(t *testing.T) {
	m := watched(opstest.Busy())
	events := []*event.Event{{CommitTime: opstest.Noon.Add(-2 * time.Millisecond), Payload: []byte("12345")}, {CommitTime: opstest.Noon, Payload: nil}}
	m.Confirmed(0, events, opstest.Noon)
	m.Rejected(&event.Event{}, &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable}, 1)
	m.Unavailable(0, 3, nil)
	m.Rejected(&event.Event{}, &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}, 1)
	m.Confirmed(0, []*event.Event{{Copy: true}}, opstest.Noon)
	m.Rejected(&event.Event{Copy: true}, &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}, 1)
	m.Failed(2)
	m.Deferred(6)
	m.Deferred(1)
	m.Retried(8)
	m.Dead(9)
	m.Exhausted(4)
	m.Mirrored(3)
	m.MirrorFailed(1)
	m.Skipped("update")
	m.HeaderDropped("traceparent")
	m.Confirms(1, 2, 3, 4)
	m.ChannelOpened()
	m.SinkConnected(false)
	m.SinkConnected(true)
	m.StreamReconnected()
	mustHave(t, scrape(t, m),
		`cdc_relay_events_total{outcome="published"} 2`,
		`cdc_relay_events_total{outcome="retry"} 7`,
		`cdc_relay_events_total{outcome="dead_letter"} 9`,
		`cdc_relay_events_total{outcome="failed"} 5`,
		`cdc_relay_retry_attempts_total 8`,
		`cdc_relay_retries_exhausted_total 4`,
		`cdc_relay_dead_letters_total 9`,
		`cdc_relay_dead_letters_mirrored_total 3`,
		`cdc_relay_dead_letter_mirror_failures_total 1`,
		`cdc_relay_messages_skipped_total{reason="update"} 1`,
		`cdc_relay_headers_dropped_total{header="traceparent"} 1`,
		`cdc_relay_publish_latency_seconds_bucket{le="0.0005"} 1`,
		`cdc_relay_publish_latency_seconds_bucket{le="0.0025"} 2`,
		`cdc_relay_publish_latency_seconds_bucket{le="60"} 2`,
		`cdc_relay_publish_latency_seconds_count 2`,
		`cdc_relay_published_bytes_total 5`,
		`cdc_relay_backlog_events 47`,
		`cdc_relay_oldest_unsettled_seconds 3`,
		`cdc_relay_last_confirm_timestamp_seconds 1.795176e+09`,
		`cdc_relay_in_flight_events 7`,
		`cdc_relay_in_flight_bytes 700`,
		`cdc_relay_destinations_paused 3`,
		`cdc_relay_waiting_keys 12`,
		`cdc_relay_deferred_events 40`,
		`cdc_relay_deferred_oldest_age_seconds 90`,
		`cdc_relay_refused_rows 2`,
		`cdc_relay_dead_letters_open 4`,
		`cdc_relay_dead_letters_oldest_age_seconds 7200`,
		`cdc_relay_retry_table_bytes 81920`,
		`cdc_relay_guard_active 1`,
		`cdc_relay_guard_full 0`,
		`cdc_relay_rejections_total{class="destination",reason="unroutable"} 1`,
		`cdc_relay_rejections_total{class="permanent",reason="too_large"} 1`,
		`cdc_relay_sink_up 1`,
		`cdc_relay_sink_pending_confirms 6`,
		`cdc_relay_sink_ignored_returns_total 7`,
		`cdc_relay_sink_found_total 37`,
		`cdc_relay_confirms_total{result="ack"} 1`,
		`cdc_relay_confirms_total{result="nack"} 2`,
		`cdc_relay_confirms_total{result="returned"} 3`,
		`cdc_relay_confirms_total{result="timeout"} 4`,
		`cdc_relay_sink_connections 2`,
		`cdc_relay_sink_channels 32`,
		`cdc_relay_sink_channel_opens_total 1`,
		`cdc_relay_sink_reconnects_total 1`,
		`cdc_relay_stream_up 1`,
		`cdc_relay_stream_reconnects_total 1`,
		`cdc_relay_leader 1`,
		`cdc_relay_standby 0`,
		`cdc_relay_build_info{commit="abc",goversion="go1.26",version="v1"} 1`,
		`cdc_relay_slot_lag_bytes{slot="cdc_relay"} 2048`,
		`cdc_relay_slot_retained_bytes{slot="cdc_relay"} 4096`,
		`cdc_relay_slot_lag_seconds{slot="cdc_relay"} 3`,
		`cdc_relay_slot_safe_wal_bytes{slot="cdc_relay"} 1.073741824e+09`,
		`cdc_relay_slot_own{slot="cdc_relay"} 1`,
		`cdc_relay_slot_active{slot="cdc_relay"} 1`,
		`cdc_relay_slot_wal_status{slot="cdc_relay",status="reserved"} 1`,
		`cdc_relay_slot_wal_status{slot="cdc_relay",status="extended"} 0`,
		`cdc_relay_slot_wal_status{slot="cdc_relay",status="unreserved"} 0`,
		`cdc_relay_slot_wal_status{slot="cdc_relay",status="lost"} 0`,
		`cdc_relay_slot_spilled_bytes_total{slot="cdc_relay"} 99`,
		`cdc_relay_slots_unheld 1`,
		`cdc_relay_outbox_table_bytes 5000`,
		`cdc_relay_retention_behind_seconds 10`,
	)
	mustLack(t, scrape(t, m), "cdc_relay_stopped")
}

// A metric whose value is not known yet is absent.
func TestMetricsBeforeAnythingHappened(t *testing.T) {
	m := watched(ops.Snapshot{Phase: ops.Starting, Slot: ops.Slot{Name: "s"}})
	lines := scrape(t, m)
	mustHave(t, lines, `cdc_relay_events_total{outcome="published"} 0`, `cdc_relay_events_total{outcome="failed"} 0`, `cdc_relay_events_total{outcome="retry"} 0`, `cdc_relay_events_total{outcome="dead_letter"} 0`,
		`cdc_relay_retry_attempts_total 0`, `cdc_relay_retries_exhausted_total 0`, `cdc_relay_dead_letters_total 0`, `cdc_relay_retention_deleted_total 0`, `cdc_relay_dead_letters_mirrored_total 0`, `cdc_relay_dead_letter_mirror_failures_total 0`,
		`cdc_relay_confirms_total{result="nack"} 0`,
		`cdc_relay_sink_up 0`, `cdc_relay_stream_up 0`, `cdc_relay_leader 0`, `cdc_relay_standby 0`, `cdc_relay_slot_lag_seconds{slot="s"} 0`)
	mustHave(t, lines, `cdc_relay_messages_skipped_total{reason="non_transactional"} 0`, `cdc_relay_messages_skipped_total{reason="update"} 0`,
		`cdc_relay_rejections_total{class="destination",reason="unroutable"} 0`, `cdc_relay_rejections_total{class="permanent",reason="too_large"} 0`,
		`cdc_relay_rejections_total{class="transient",reason="broker_exception"} 0`)
	mustLack(t, lines, "cdc_relay_last_confirm_timestamp_seconds", "cdc_relay_slot_lag_bytes", "cdc_relay_slot_active", "cdc_relay_slot_wal_status", "cdc_relay_slot_safe_wal_bytes",
		"cdc_relay_outbox_table_bytes", "cdc_relay_retention_behind_seconds")
	mustLack(t, lines, ofTheLeader...)
}

// ofTheLeader are prefixes of the metrics that only the leader reports.
var ofTheLeader = []string{
	"cdc_relay_backlog_events", "cdc_relay_in_flight_", "cdc_relay_oldest_unsettled_", "cdc_relay_destinations_paused", "cdc_relay_waiting_keys",
	"cdc_relay_deferred_events", "cdc_relay_deferred_oldest_", "cdc_relay_refused_rows", "cdc_relay_retry_table_bytes", "cdc_relay_guard_", "cdc_relay_dead_letters_open", "cdc_relay_retention_behind_seconds",
	"cdc_relay_slots_unheld",
}

func TestMetricsWhenThingsAreBad(t *testing.T) {
	t.Run("slot lost, without a limit", func(t *testing.T) {
		s := opstest.Busy()
		s.Slot.WALStatus, s.Slot.SafeWALBytes, s.Slot.Active = "lost", nil, false
		s.Slot.ConfirmedFlush, s.Slot.Restart = 0x2000, 0 // ahead of Current; unknown
		lines := scrape(t, watched(s))
		mustHave(t, lines, `cdc_relay_slot_wal_status{slot="cdc_relay",status="lost"} 1`, `cdc_relay_slot_wal_status{slot="cdc_relay",status="reserved"} 0`,
			`cdc_relay_slot_active{slot="cdc_relay"} 0`, `cdc_relay_slot_lag_bytes{slot="cdc_relay"} 0`, `cdc_relay_slot_retained_bytes{slot="cdc_relay"} 0`)
		mustLack(t, lines, "cdc_relay_slot_safe_wal_bytes")
	})
	t.Run("stopped", func(t *testing.T) {
		s := opstest.Busy()
		s.Phase, s.Reason, s.OldestUnsettled, s.Since, s.Slot.Active = ops.Stopped, "slot_lost", time.Time{}, opstest.Noon.Add(-time.Minute), false
		mustHave(t, scrape(t, watched(s)), `cdc_relay_stopped{reason="slot_lost"} 1`, `cdc_relay_leader 0`, `cdc_relay_stream_up 0`, `cdc_relay_slot_lag_seconds{slot="cdc_relay"} 60`)
	})
	t.Run("no stream: the lag grows though nothing is in flight", func(t *testing.T) {
		s := opstest.Busy()
		s.Phase, s.OldestUnsettled, s.Since, s.Slot.Active = ops.Waiting, time.Time{}, opstest.Noon.Add(-90*time.Second), false
		mustHave(t, scrape(t, watched(s)), `cdc_relay_slot_lag_seconds{slot="cdc_relay"} 90`, `cdc_relay_leader 0`)
	})
	t.Run("a standby: the leader alone knows the commits", func(t *testing.T) {
		s := opstest.Busy()
		s.Phase, s.OldestUnsettled = ops.Standby, time.Time{}
		lines := scrape(t, watched(s))
		mustHave(t, lines, `cdc_relay_slot_lag_bytes{slot="cdc_relay"} 2048`, `cdc_relay_slot_active{slot="cdc_relay"} 1`, `cdc_relay_outbox_table_bytes 5000`)
		mustHave(t, lines, `cdc_relay_standby 1`, `cdc_relay_leader 0`, `cdc_relay_stream_up 0`)
		mustLack(t, lines, "cdc_relay_slot_lag_seconds")
	})
	// What it counted while it led does not matter: the new leader has counted that, too.
	for _, phase := range []ops.Phase{ops.Waiting, ops.Standby, ops.Stopped} {
		t.Run(string(phase)+", and another relay leads", func(t *testing.T) {
			s := opstest.Busy()
			s.Phase, s.Since = phase, opstest.Noon.Add(-time.Minute)
			lines := scrape(t, watched(s))
			mustLack(t, lines, ofTheLeader...)
			mustLack(t, lines, "cdc_relay_slot_lag_seconds")
			mustHave(t, lines, `cdc_relay_slot_active{slot="cdc_relay"} 1`)
		})
	}
	t.Run("PostgreSQL is away: its last answer is reported for a minute, and the lag grows", func(t *testing.T) {
		s := opstest.Busy()
		s.Phase, s.OldestUnsettled, s.Since = ops.Waiting, time.Time{}, opstest.Noon.Add(-90*time.Second)
		s.Slot.Checked = opstest.Noon.Add(-time.Minute)
		mustHave(t, scrape(t, watched(s)), `cdc_relay_slot_retained_bytes{slot="cdc_relay"} 4096`)
		s.Slot.Checked = opstest.Noon.Add(-time.Minute - time.Second)
		lines := scrape(t, watched(s))
		mustHave(t, lines, `cdc_relay_slot_lag_seconds{slot="cdc_relay"} 90`, `cdc_relay_slot_own{slot="cdc_relay"} 1`)
		mustLack(t, lines, "cdc_relay_slot_lag_bytes", "cdc_relay_slot_retained_bytes", "cdc_relay_slot_safe_wal_bytes", "cdc_relay_slot_active", "cdc_relay_slot_wal_status", "outbox_slot_spilled_bytes")
		// held by the relay itself
		s.Since, s.Slot.Checked = opstest.Noon.Add(-30*time.Second), opstest.Noon.Add(-31*time.Second)
		mustHave(t, scrape(t, watched(s)), `cdc_relay_slot_lag_seconds{slot="cdc_relay"} 30`, `cdc_relay_slot_active{slot="cdc_relay"} 1`)
	})
	t.Run("nothing is deferred or dead", func(t *testing.T) {
		s := opstest.Busy()
		s.RetryTable = ops.RetryTable{Counted: opstest.Noon}
		mustHave(t, scrape(t, watched(s)), `cdc_relay_deferred_events 0`, `cdc_relay_deferred_oldest_age_seconds 0`, `cdc_relay_dead_letters_open 0`, `cdc_relay_dead_letters_oldest_age_seconds 0`, `cdc_relay_backlog_events 7`)
	})
	t.Run("a server clock ahead of ours", func(t *testing.T) {
		s := opstest.Busy()
		s.OldestUnsettled, s.RetryTable.OldestDeferred = opstest.Noon.Add(time.Hour), opstest.Noon.Add(time.Hour)
		m := watched(s)
		m.Confirmed(0, []*event.Event{{CommitTime: opstest.Noon.Add(time.Hour)}}, opstest.Noon)
		mustHave(t, scrape(t, m), `cdc_relay_oldest_unsettled_seconds 0`, `cdc_relay_deferred_oldest_age_seconds 0`, `cdc_relay_slot_lag_seconds{slot="cdc_relay"} 0`, `cdc_relay_publish_latency_seconds_sum 0`)
	})
}

// Every label is one of a closed list: an id, key or payload must never get there.
func TestLabelsAreClosed(t *testing.T) {
	m := watched(opstest.Busy())
	m.Confirmed(0, []*event.Event{{ID: []byte("secret-id"), Key: []byte("secret-key"), Payload: []byte("secret-payload")}}, opstest.Noon)
	m.Rejected(&event.Event{ID: []byte("secret-id")}, &sink.Fault{Destination: "secret-destination", Text: "secret-words"}, 1)
	for _, line := range scrape(t, m) {
		if strings.Contains(line, "secret") {
			t.Error(line)
		}
		for _, label := range regexp.MustCompile(`[{,]([a-z]+)=`).FindAllStringSubmatch(line, -1) {
			if !slices.Contains([]string{"outcome", "reason", "class", "result", "le", "slot", "status", "header", "code", "commit", "goversion", "version"}, label[1]) {
				t.Errorf("label %s in %s", label[1], line)
			}
		}
	}
}

// An attempt is counted once, by what became of it; a rejection says only why.
func TestARejectionIsNoOutcome(t *testing.T) {
	m := New("", "", "")
	m.Rejected(&event.Event{}, &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable}, 1)
	mustHave(t, scrape(t, m), `cdc_relay_events_total{outcome="failed"} 0`, `cdc_relay_events_total{outcome="retry"} 0`, `cdc_relay_events_total{outcome="dead_letter"} 0`)
}

func TestCountingDoesNotAllocate(t *testing.T) {
	m := New("", "", "")
	events := []*event.Event{{CommitTime: opstest.Noon}, {CommitTime: opstest.Noon}}
	m.Skipped("update")
	traced := []*event.Event{
		{CommitTime: opstest.Noon, Traceparent: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")},
		{CommitTime: opstest.Noon, Traceparent: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")},
	}
	fault := &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}
	for name, count := range map[string]func(){
		"Confirmed":                        func() { m.Confirmed(0, events, opstest.Noon) },
		"Confirmed, not sampled":           func() { m.Confirmed(0, traced[:1], opstest.Noon.Add(time.Hour)) },
		"Confirmed, sampled, but too soon": func() { m.Confirmed(0, traced, opstest.Noon.Add(2*time.Hour)) },
		"Rejected":                         func() { m.Rejected(events[0], fault, 1) },
		"Skipped":                          func() { m.Skipped("update") },
		"Confirms":                         func() { m.Confirms(1, 1, 1, 1) },
	} {
		count()
		if n := testing.AllocsPerRun(100, count); n > 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func TestRate(t *testing.T) {
	var r rate
	for second := range 30 {
		r.add(opstest.Noon.Add(time.Duration(second)*time.Second), 100)
	}
	if got := r.perSecond(opstest.Noon.Add(30 * time.Second)); got != 100 {
		t.Errorf("a steady 100 a second is %v", got)
	}
	if got := r.perSecond(opstest.Noon.Add(35 * time.Second)); got != 50 {
		t.Errorf("five seconds after the last it is %v, want 50", got)
	}
	if got := r.perSecond(opstest.Noon.Add(time.Hour)); got != 0 {
		t.Errorf("long after the last it is %v, want 0", got)
	}
	if got := new(rate).perSecond(opstest.Noon); got != 0 {
		t.Errorf("before the first it is %v, want 0", got)
	}
}

func TestRatesAndTotals(t *testing.T) {
	m, at := New("", "", ""), opstest.Noon.Add(-2*time.Second)
	m.Confirmed(0, []*event.Event{{CommitTime: at}, {CommitTime: at}}, at)
	if got := m.Totals(); got.Published != 2 || !got.LastConfirm.Equal(at) {
		t.Errorf("totals are %+v", got)
	}
	if got := m.Rates(opstest.Noon); got.PublishedPerSecond != 0.2 {
		t.Errorf("rates are %+v", got)
	}
}

func TestMetricsOfAllSlots(t *testing.T) {
	lines := scrape(t, watched(opstest.BusyWithOtherSlots()))
	mustHave(t, lines,
		`cdc_relay_slot_lag_seconds{slot="cdc_relay"} 3`,
		`cdc_relay_slot_lag_seconds{slot="debezium"} 90`,
		`cdc_relay_slot_lag_seconds{slot="other_relay"} 0`,
		`cdc_relay_slot_lag_bytes{slot="debezium"} 1024`,
		`cdc_relay_slot_lag_bytes{slot="other_relay"} 0`,
		`cdc_relay_slot_retained_bytes{slot="debezium"} 5120`,
		`cdc_relay_slot_active{slot="debezium"} 0`,
		`cdc_relay_slot_active{slot="other_relay"} 1`,
		`cdc_relay_slot_wal_status{slot="debezium",status="extended"} 1`,
		`cdc_relay_slot_wal_status{slot="debezium",status="lost"} 0`,
		`cdc_relay_slot_spilled_bytes_total{slot="other_relay"} 7`,
	)
	mustLack(t, lines, "cdc_relay_slot_synced", "cdc_relay_slot_waiting_for_standby")
	for _, line := range lines {
		if strings.Contains(line, "unheard_of") {
			t.Errorf("nobody knows that: %s", line)
		}
	}
}

// A slot that is no failover slot waits for no standby.
func TestMetricOfAStandbyThatIsWaitedFor(t *testing.T) {
	s := opstest.Busy()
	s.Slot.Failover = true
	mustHave(t, scrape(t, watched(s)), `cdc_relay_slot_waiting_for_standby{slot="cdc_relay"} 0`)
	s.WaitingForStandby = []string{"b"}
	mustHave(t, scrape(t, watched(s)), `cdc_relay_slot_waiting_for_standby{slot="cdc_relay"} 1`)
}

// The other hosts are the leader's to report.
func TestMetricOfOtherHosts(t *testing.T) {
	s := opstest.Busy()
	s.Hosts = []ops.HostSlot{{Host: "a:5432", Synced: true}, {Host: "b:5432"}}
	mustHave(t, scrape(t, watched(s)), `cdc_relay_slot_synced{host="a:5432"} 1`, `cdc_relay_slot_synced{host="b:5432"} 0`)
	s.Phase = ops.Standby
	mustLack(t, scrape(t, watched(s)), "cdc_relay_slot_synced")
}

// openMetrics returns the exemplars that an OpenMetrics scraper receives, in the order of their
// buckets.
func openMetrics(t *testing.T, m *Metrics) (exemplars []string) {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, request)
	for _, found := range regexp.MustCompile(`(?m)^cdc_relay_publish_latency_seconds_bucket\{le="([^"]*)"\} .* # \{trace_id="([^"]*)"\}`).FindAllStringSubmatch(answer.Body.String(), -1) {
		exemplars = append(exemplars, found[1]+" "+found[2])
	}
	return exemplars
}

// One event a second whose trace is sampled is an exemplar of the latency, and no other.
func TestExemplars(t *testing.T) {
	m := New("", "", "")
	trace := func(digit string) string { return strings.Repeat(digit, 32) }
	newEvent := func(digit, flags string, latency time.Duration) *event.Event {
		return &event.Event{CommitTime: opstest.Noon.Add(-latency), Traceparent: []byte("00-" + trace(digit) + "-b7ad6b7169203331-" + flags)}
	}
	want := func(exemplars ...string) {
		t.Helper()
		if got := openMetrics(t, m); !slices.Equal(got, exemplars) {
			t.Errorf("exemplars are %q, want %q", got, exemplars)
		}
	}
	m.Confirmed(0, []*event.Event{{CommitTime: opstest.Noon}, newEvent("1", "00", 0)}, opstest.Noon)
	want()
	m.Confirmed(0, []*event.Event{newEvent("2", "00", 0), newEvent("3", "01", 2*time.Millisecond), newEvent("4", "01", time.Second)}, opstest.Noon)
	want("0.0025 " + trace("3"))
	m.Confirmed(0, []*event.Event{newEvent("5", "01", 0)}, opstest.Noon.Add(999*time.Millisecond))
	want("0.0025 " + trace("3"))
	m.Confirmed(0, []*event.Event{newEvent("6", "01", 8*time.Second)}, opstest.Noon.Add(time.Second))
	want("0.0025 "+trace("3"), "10.0 "+trace("6"))
	mustHave(t, scrape(t, m), `cdc_relay_publish_latency_seconds_count 7`)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
