package main

import (
	"os"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
)

// The table of the README is that of the reports: no number in it is written by hand.
func TestReadmeHasTheMeasuredTable(t *testing.T) {
	reports, err := contestReports("..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := withTable(string(text), comparison(reports))
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != want {
		t.Errorf("README.md has another table than bench/results:\n%s", comparison(reports))
	}
	for i, report := range reports {
		if report != "" && len(readShort(report)) < 6 {
			t.Errorf("%s.md has no short table", contestNames[i])
		}
	}
}

func TestComparison(t *testing.T) {
	rabbit := report{broker: "RabbitMQ", results: []result{
		{name: "a", short: "rate", ours: "20.0k/s (19.0k/s … 21.0k/s)", base: "7.0k/s (6.0k/s … 8.0k/s)", usual: "6.0k/s"},
		{name: "b", ours: "not in short"},
		{name: "c", short: "lost", ours: "0 of 12,000", base: "7,015 of 12,000"},
	}}
	kafka := report{broker: "Kafka", results: []result{{name: "a", short: "rate", ours: "90.0k/s", base: "21.0k/s", usual: "20.0k/s"}}}
	got := comparison([]string{rabbit.markdown(), kafka.markdown()})
	want := "| rate | 20.0k/s | 7.0k/s | 6.0k/s | 90.0k/s | 21.0k/s | 20.0k/s |\n| lost | 0 of 12,000 | 7,015 of 12,000 | – | – | – | – |\n"
	if !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 4 {
		t.Errorf("the table is\n%s", got)
	}
	text, err := withTable("before\n"+tableBegins+"old\n"+tableEnds+"after\n", got)
	if err != nil || text != "before\n"+tableBegins+got+tableEnds+"after\n" {
		t.Errorf("%v:\n%s", err, text)
	}
	if _, err := withTable("no place", got); err == nil {
		t.Error("a table has gone into a text without a place for it")
	}
}

// TestDuelResult is about when a row of the contest is void: when Debezium differs so much from
// itself that the verdict does.
func TestDuelResult(t *testing.T) {
	for _, tc := range []struct {
		base, ours []float64
		must       float64
		higher     bool
		want       string
	}{
		{[]float64{100, 100, 100}, []float64{5, 5}, 0.1, false, "PASS"},
		{[]float64{100, 50, 100}, []float64{2, 2}, 0.1, false, "PASS"}, // at most 0.04
		{[]float64{100, 50, 100}, []float64{8, 8}, 0.1, false, "VOID"}, // 0.04 … 0.16
		{[]float64{100, 50, 100}, []float64{30, 30}, 0.1, false, "FAIL"},
		{[]float64{10, 10, 10}, []float64{25, 25}, 2, true, "PASS"},
		{[]float64{10, 8, 10}, []float64{19, 19}, 2, true, "VOID"},
		{[]float64{10, 10, 10}, []float64{15, 15}, 2, true, "FAIL"},
	} {
		var d duel
		for _, v := range tc.base {
			d.base = append(d.base, outcome{rate: v})
		}
		for _, v := range tc.ours {
			d.ours = append(d.ours, outcome{rate: v})
		}
		r := d.result("row", outcome.getRate, perSecond, tc.must, tc.higher)
		if got := r.verdict(); got != tc.want {
			t.Errorf("%+v: %s (%.2f, A/A %.2f), want %s", tc, got, r.value, r.aa, tc.want)
		}
	}
}

func TestLosses(t *testing.T) {
	p := &phase{first: 7 << 32, at: make([]int64, 4)}
	of := func(numbers ...int64) (all []checker.Delivery) {
		for _, n := range numbers {
			all = append(all, checker.Delivery{ID: uuid(p.first + n), Key: "k"})
		}
		return all
	}
	for _, tc := range []struct {
		arrived []checker.Delivery
		want    losses
	}{
		{of(0, 1, 2, 3), losses{0, 0, 4}},
		{of(0, 0, 1, 2, 0, 3), losses{0, 0, 4}},
		{of(0, 3), losses{2, 0, 4}},
		{of(0, 2, 1, 3), losses{0, 1, 4}},
		{append(of(0, 1), checker.Delivery{ID: uuid(8 << 32), Key: "k"}), losses{2, 0, 4}},
	} {
		if got, err := p.losses(tc.arrived); err != nil || got != tc.want {
			t.Errorf("%d arrived: %+v, %v, want %+v", len(tc.arrived), got, err, tc.want)
		}
	}
	if _, err := p.losses(of(0, 4)); err == nil {
		t.Error("a message that no row made is no error")
	}
}
