package cli

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// notHere are the metrics of docs/metrics.md that this relay has no reason to report.
var notHere = []string{
	"cdc_relay_stopped", "cdc_relay_guard_active", "cdc_relay_guard_full", "cdc_relay_retention_behind_seconds", "cdc_relay_slot_synced",
	"cdc_relay_slot_safe_wal_bytes", "cdc_relay_slot_waiting_for_standby",
}

// Every metric is there under its name, and what is counted is what was written.
func TestMetrics(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	relay := b.start()
	b.insert(25)
	b.exec(`SELECT pg_logical_emit_message(true, 'other', 'no event')`)
	b.exec(`INSERT INTO outbox VALUES (gen_random_uuid(), 'order', 'dropped', 'created', '{}', '{"cdc_position": "mine", "tenant": 1}')`)
	must(t, b.consumer.WaitCount(await.Context(t), 26))
	bytes := ask[int](b.rig, `SELECT sum(octet_length(payload::text)) FROM outbox`)
	slot := `{slot="` + b.slot + `"}`
	eventually(t, func() string {
		m := scrape(t, relay)
		for name, want := range map[string]float64{
			`cdc_relay_events_total{outcome="published"}`:                        26,
			`cdc_relay_events_total{outcome="failed"}`:                           0,
			`cdc_relay_messages_skipped_total{reason="message"}`:                 1,
			`cdc_relay_publish_latency_seconds_count`:                            26,
			`cdc_relay_publish_latency_seconds_bucket{le="+Inf"}`:                26,
			`cdc_relay_published_bytes_total`:                                    float64(bytes),
			`cdc_relay_headers_dropped_total{header="cdc_position"}`:             1,
			`cdc_relay_confirms_total{result="ack"}`:                             26,
			`cdc_relay_confirms_total{result="nack"}`:                            0,
			`cdc_relay_confirms_total{result="returned"}`:                        0,
			`cdc_relay_confirms_total{result="timeout"}`:                         0,
			`cdc_relay_backlog_events`:                                           0,
			`cdc_relay_in_flight_events`:                                         0,
			`cdc_relay_in_flight_bytes`:                                          0,
			`cdc_relay_destinations_paused`:                                      0,
			`cdc_relay_deferred_events`:                                          0,
			`cdc_relay_dead_letters_open`:                                        0,
			`cdc_relay_sink_up`:                                                  1,
			`cdc_relay_sink_connections`:                                         2,
			`cdc_relay_stream_up`:                                                1,
			`cdc_relay_leader`:                                                   1,
			`cdc_relay_slots_unheld`:                                             0,
			`cdc_relay_unsent_rows{table="public.outbox"}`:                       0,
			`cdc_relay_slot_active` + slot:                                       1,
			`cdc_relay_slot_wal_status{slot="` + b.slot + `",status="reserved"}`: 1,
		} {
			if got, ok := m.values[name]; !ok || got != want {
				return name + " is " + strconv.FormatFloat(got, 'g', -1, 64) + ", want " + strconv.FormatFloat(want, 'g', -1, 64)
			}
		}
		return ""
	})

	// A rejection is counted by class and reason, and the event as a dead letter; it is no state,
	// nothing waits for it.
	b.exec(`INSERT INTO outbox VALUES (gen_random_uuid(), 'order', 'too large', repeat('x', 300), '{}')`)
	eventually(t, func() string {
		m := scrape(t, relay)
		for name, want := range map[string]float64{
			`cdc_relay_rejections_total{class="permanent",reason="invalid"}`: 1, `cdc_relay_events_total{outcome="dead_letter"}`: 1, `cdc_relay_events_total{outcome="failed"}`: 0,
			`cdc_relay_events_total{outcome="retry"}`: 0, `cdc_relay_dead_letters_total`: 1, `cdc_relay_dead_letters_open`: 1, `cdc_relay_backlog_events`: 0, `cdc_relay_deferred_events`: 0,
		} {
			if got := m.values[name]; got != want {
				return name + " is " + strconv.FormatFloat(got, 'g', -1, 64) + ", want " + strconv.FormatFloat(want, 'g', -1, 64)
			}
		}
		return ""
	})
	if out := b.ok("status", "--admin", relay.AdminSocket()); !strings.Contains(out, "\ndead       1 dead letter open, the first for ") || strings.Contains(out, "deferring") {
		t.Errorf("status says %s", out)
	}
	if out := b.ok("status", "--admin", "127.0.0.1:1"); !strings.Contains(out, "\n  1 dead letter open, the first for ") {
		t.Errorf("without the relay, status says %s", out)
	}

	m := scrape(t, relay)
	// The page is the contract with dashboards; test/docs compares it with the code.
	documented := regexp.MustCompile("(?m)`(cdc_relay_[a-z_]+)[`{]").FindAllStringSubmatch(pages.Text(t, "docs/metrics.md"), -1)
	if len(documented) < 50 {
		t.Errorf("docs/metrics.md names only %d metrics", len(documented))
	}
	for _, found := range documented {
		name, want := found[1], "gauge"
		switch {
		case strings.HasPrefix(name, "cdc_relay_inbox_"): // a consumer's
			continue
		case strings.HasSuffix(name, "_total"):
			want = "counter"
		case name == "cdc_relay_publish_latency_seconds":
			want = "histogram"
		}
		if m.types[name] != want && !slices.Contains(notHere, name) {
			t.Errorf("%s is a %q, want a %s", name, m.types[name], want)
		}
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if m.types[name] == "" {
			t.Errorf("there is no %s", name)
		}
	}
	// it does little now, for which one processor is enough
	want, err := strconv.ParseFloat(cmp.Or(os.Getenv("GOMAXPROCS"), "1"), 64)
	must(t, err)
	eventually(t, func() string {
		if got := scrape(t, relay).values["go_sched_gomaxprocs_threads"]; got != want {
			return fmt.Sprintf("an idle relay uses %g processors, want %g", got, want)
		}
		return ""
	})
}

// A broker that is away keeps WAL at the primary. How much is told by the metrics and by the
// status: nobody has to find it out from a full disk.
func TestRetainedWALIsShown(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	b.exec(`CREATE TABLE filler (t text)`)
	p := proxy(t, b.broker.Addr())
	b.sink = "  rabbitmq: {url: '" + through(b.vhost, p.Addr()) + "'}"
	relay := b.start()
	p.Cut()
	state(t, relay, "broker down")
	b.insert(1)
	// the slot may move up to it, and no further
	event := ask[string](b.rig, `SELECT pg_current_wal_lsn()::text`)
	b.exec(`INSERT INTO filler SELECT repeat('x', 500) FROM generate_series(1, 10000)`)
	kept := ask[float64](b.rig, `SELECT (pg_current_wal_lsn() - $1::pg_lsn)::float8`, event)
	if kept < 5e6 {
		t.Fatalf("only %.0f bytes were written behind the event", kept)
	}
	slot := `{slot="` + b.slot + `"}`
	eventually(t, func() string {
		m := scrape(t, relay)
		for name, least := range map[string]float64{
			"cdc_relay_slot_lag_bytes": kept, "cdc_relay_slot_retained_bytes": kept, "cdc_relay_slot_lag_seconds": 0.001,
		} {
			if got := m.values[name+slot]; got < least {
				return name + " is " + strconv.FormatFloat(got, 'f', -1, 64) + ", want " + strconv.FormatFloat(least, 'f', -1, 64) + " at least"
			}
		}
		return ""
	})
	status := b.ok("status", "--admin", relay.AdminSocket())
	if !regexp.MustCompile(`retains \d+\.\d MiB`).MatchString(status) || !strings.Contains(status, "in flight  1 event, ") {
		t.Errorf("the status does not tell of it: %s", status)
	}
}

// has says "" when the metric of the slot is between the two.
func has(t *testing.T, relay *runner.Relay, name, slot string, least, most float64) string {
	t.Helper()
	got, ok := scrape(t, relay).values[name+`{slot="`+slot+`"}`]
	if !ok {
		return "there is no " + name + " of " + slot
	}
	if got < least || got > most {
		return fmt.Sprintf("%s of %s is %g, want %g to %g", name, slot, got, least, most)
	}
	return ""
}

type scraped struct {
	types  map[string]string  // by name
	values map[string]float64 // by name{labels}
}

var sample = regexp.MustCompile(`^(\S+) (\S+)$`)

func scrape(t *testing.T, relay *runner.Relay) scraped {
	t.Helper()
	code, body, err := relay.Get(await.Context(t), "/metrics")
	if err != nil || code != 200 {
		t.Fatalf("/metrics answers %d: %v", code, err)
	}
	m := scraped{map[string]string{}, map[string]float64{}}
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			m.types[name] = kind
		} else if found := sample.FindStringSubmatch(line); found != nil {
			m.values[found[1]], err = strconv.ParseFloat(found[2], 64)
			must(t, err)
		}
	}
	return m
}
