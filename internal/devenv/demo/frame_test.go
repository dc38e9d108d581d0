package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden compares text with a file of testdata, in which an escape is written as ^[.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	got = strings.ReplaceAll(got, "\x1b", "^[")
	if *rewrite {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", path, got, want)
	}
}

func text(lines []string) string { return strings.Join(lines, "\n") + "\n" }

// narrow fails unless every line fits into 80 columns, of which a terminal may want the last for its cursor.
func narrow(t *testing.T, lines []string) {
	t.Helper()
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 79 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func startView() *view {
	return &view{
		elapsed: 3400 * time.Millisecond, broker: "RabbitMQ", now: "Starting PostgreSQL, RabbitMQ and a build of cdc-relay.",
		states: map[string]string{
			ordersName: "closed", postgresName: "up", relayName: "building", brokerName: "starting", consumerName: "waits",
		},
	}
}

func outageView() *view {
	v := &view{
		elapsed: 83 * time.Second, phase: outage, broker: "RabbitMQ", now: "RabbitMQ is down: orders go on, events wait in PostgreSQL's WAL.",
		states: map[string]string{
			ordersName: "writes", postgresName: "up", relayName: "waiting for postgres", brokerName: "down", consumerName: "waits",
		},
		sample:     sample{committed: 1_234_567, delivered: 1_229_000, duplicates: 97, parked: 4_321, dead: 1, lag: 3 << 20},
		rolledBack: 612,
		latency:    latency{count: 1, p50: 1234 * time.Microsecond, p99: 12 * time.Second},
	}
	for i := range 60 {
		up := float64(min(1, max(0, 40-i)))
		v.commits = v.commits.add(600)
		v.deliveries = v.deliveries.add(600 * up)
		v.waiting = v.waiting.add(float64(300 * max(0, i-40)))
		v.lags = v.lags.add(float64(200_000 * max(0, i-40)))
		v.parked = v.parked.add(float64(200 * max(0, i-45)))
	}
	return v
}

func TestFrame(t *testing.T) {
	quiet := outageView()
	quiet.latency = latency{}
	kafkas := startView()
	kafkas.broker, kafkas.now = "Kafka", "Starting PostgreSQL, Kafka and a build of cdc-relay."
	for name, v := range map[string]*view{"start": startView(), "outage": outageView(), "quiet": quiet, "kafka": kafkas} {
		lines := frame(v, false)
		narrow(t, lines)
		golden(t, "frame-"+name+".golden", text(lines))
	}
	golden(t, "frame-colours.golden", text(frame(outageView(), true)))
}

func goodOutcome() *outcome {
	return &outcome{
		Verdict: devenv.Verdict{Committed: 11842, Delivered: 11842, Duplicates: 97, Redelivered: 12, Replayed: []string{"poison"}, MaxDuplicates: -1},
		words:   (&rabbitMQ{}).words(),
		keys:    keys, rolledBack: 612, samples: 1044, away: 9830 * time.Millisecond,
		up:      latency{count: 8000, p50: 1200 * time.Microsecond, p99: 4 * time.Millisecond, max: time.Second},
		outages: []latency{{count: 3842, max: 10100 * time.Millisecond}, {count: 2790, max: 7300 * time.Millisecond}},
		siding:  siding{died: 42 * time.Millisecond, most: 2600, waited: 6900 * time.Millisecond},
	}
}

func badOutcome() *outcome {
	o := goodOutcome()
	o.Delivered -= 2
	o.Lost, o.OutOfOrder, o.Moved = []string{"id1", "id2"}, []string{"id3"}, []string{"id4"}
	o.Phantom, o.Altered, o.FlushAheadOfDelivery = []string{"id5"}, []string{"id6"}, []string{"id7"}
	o.Parked, o.Dead = []string{"id8"}, []string{"id9"}
	return o
}

// onKafka is an outcome of the other broker, where duplicates are no more allowed than losses.
func onKafka(o *outcome, duplicates int) *outcome {
	o.words = (&kafka{}).words()
	o.Duplicates, o.MaxDuplicates, o.Redelivered = duplicates, 0, 0
	return o
}

func TestVerdict(t *testing.T) {
	for name, o := range map[string]*outcome{
		"good": goodOutcome(), "bad": badOutcome(), "kafka": onKafka(goodOutcome(), 0), "kafka-twice": onKafka(goodOutcome(), 3),
	} {
		lines := o.lines(false)
		narrow(t, lines)
		golden(t, "verdict-"+name+".golden", text(lines))
	}
	golden(t, "verdict-colours.golden", text(badOutcome().lines(true)))
}

func TestBadVerdictIsAnError(t *testing.T) {
	var out strings.Builder
	s := &stage{stdout: &out, cast: cast{broker: &rabbitMQ{}}}
	if err := s.conclude(t.Context(), goodOutcome()); err != nil || !strings.Contains(out.String(), "PASSED") {
		t.Errorf("a good verdict gives %v:\n%s", err, &out)
	}
	for name, spoil := range map[string]func(*outcome){
		"lost":         func(o *outcome) { o.Lost = []string{"id"} },
		"out of order": func(o *outcome) { o.OutOfOrder = []string{"id"} },
		"phantom":      func(o *outcome) { o.Phantom = []string{"id"} },
		"parked":       func(o *outcome) { o.Parked = []string{"id"} },
		"dead":         func(o *outcome) { o.Dead = []string{"id"} },
		"twice":        func(o *outcome) { onKafka(o, 1) },
	} {
		out.Reset()
		o := goodOutcome()
		spoil(o)
		if err := s.conclude(t.Context(), o); err == nil || !strings.Contains(out.String(), "FAILED") || strings.Contains(out.String(), "PASSED") {
			t.Errorf("%s gives %v:\n%s", name, err, &out)
		}
	}
}

func TestPlain(t *testing.T) {
	var out strings.Builder
	p := &plain{out: &out}
	p.show(startView())
	p.say(4*time.Second, "PostgreSQL answers.")
	v := outageView()
	for range 30 { // three seconds
		p.show(v)
		v.elapsed += 100 * time.Millisecond
	}
	v.latency = latency{}
	v.elapsed += time.Second
	p.show(v)
	p.close()
	golden(t, "plain.golden", out.String())
}

func TestNumbers(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{thousands(0), "0"},
		{thousands(999), "999"},
		{thousands(1000), "1,000"},
		{thousands(-1234567), "-1,234,567"},
		{size(999), "999 B"},
		{size(1000), "1.0 KiB"},
		{size(5 << 30), "5.0 GiB"},
		{short(40 * time.Microsecond), "0.0 ms"},
		{short(9940 * time.Microsecond), "9.9 ms"},
		{short(436 * time.Millisecond), "436 ms"},
		{short(11800 * time.Millisecond), "11.8 s"},
		{clock(61 * time.Second), "1:01"},
		{trail{0, 1, 500, 1000, 2000}.bars(1000), "·▁▃▅█"},
		{fmt.Sprint(len(outageView().commits)), fmt.Sprint(trailLength)},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}
