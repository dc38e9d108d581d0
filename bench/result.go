// Sides in turns, and what they have shown: figures, verdicts, and the report.
package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// row is one thing that -only can select: what is run, and which figures of it count.
type row struct {
	report string // its file; "" in a comparison
	name   string
	title  string
	figures
	base, ours run             // in turns; base may be nil
	usual      run             // once, besides; nil: there is none
	of         func(relay) run // in a comparison, in place of ours
	pairs      int
	// around has a run of the whole row inside of it
	around func(ctx context.Context, measure func() error) error
}

type figures []figure

// path is what -only selects a row by.
func (r row) path(k kind) string {
	if r.report == "" {
		return k.sink + "/" + r.name
	}
	return k.sink + "/" + r.report + "/" + r.name
}

// figure is one number of an outcome.
type figure struct {
	name   string
	pick   func(outcome) float64
	show   func(float64) string
	higher bool   // is better
	short  string // its name in the short table; "": it is not there
	bare   bool   // a comparison shows it ÷ that of the bare baseline
	// what is asked: of the ratio or, when alone, of the number itself
	asked bool
	must  float64
	alone bool // the baseline is shown and not divided by
	worst bool // the largest counts, not the median
}

func (f figure) as(short string) figure   { f.short = short; return f }
func (f figure) reach(v float64) figure   { f.asked, f.must = true, v; return f }
func (f figure) byItself() figure         { f.alone = true; return f }
func (f figure) ofTheWorst() figure       { f.worst, f.alone = true, true; return f }
func (f figure) named(name string) figure { f.name = name; return f }
func (f figure) besideBare() figure       { f.bare = true; return f }

var (
	rateFigure    = figure{name: "events per second", pick: func(o outcome) float64 { return o.rate }, show: perSecond, higher: true}
	cpuFigure     = figure{name: "CPU per event, the start counted", pick: func(o outcome) float64 { return o.cpu }, show: usedTime}
	warmCPUFigure = figure{name: "CPU per event, the start not counted", pick: func(o outcome) float64 { return o.warmCPU }, show: usedTime}
	peakFigure    = figure{name: "peak memory (RSS)", pick: func(o outcome) float64 { return o.peak }, show: mebibytes}
	startFigure   = figure{name: "start of the process to the first event", pick: func(o outcome) float64 { return o.start }, show: lapse}
	p50Figure     = figure{name: "p50 from COMMIT to arrival", pick: func(o outcome) float64 { return o.p50 }, show: lapse}
	p99Figure     = figure{name: "p99 from COMMIT to arrival", pick: func(o outcome) float64 { return o.p99 }, show: lapse}
	warmP99Figure = figure{name: "p99 from COMMIT to arrival", pick: func(o outcome) float64 { return o.warmP99 }, show: lapse}
	lostFigure    = figure{name: "events that never came", pick: func(o outcome) float64 { return o.lost }, show: func(v float64) string { return thousands(int(v)) }}
	twiceFigure   = figure{name: "events that came twice", pick: func(o outcome) float64 { return o.twice }, show: func(v float64) string { return thousands(int(v)) }, worst: true, alone: true}
	gapFigure     = figure{name: "time without an event", pick: func(o outcome) float64 { return o.gap }, show: lapse}
)

// turns runs base, ours, base, ours, …, base: so many pairs and one more of base, so that base can
// be held against itself. The first run of ours warms the broker up and does not count.
func (s *stand) turns(ctx context.Context, r row) (found []result, err error) {
	pairs := r.pairs
	if s.quick {
		pairs = min(pairs, 1)
	}
	one := func(side string, do run, into *[]outcome) error {
		if do == nil {
			return nil
		}
		o, err := do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", side, err)
		}
		s.say("    %s %s", side, r.say(o))
		*into = append(*into, o)
		return nil
	}
	var base, ours, usual, warm []outcome
	measure := func() error {
		if pairs > 1 && r.base != nil {
			if err := one("to warm up", r.ours, &warm); err != nil {
				return err
			}
		}
		if err := one("its defaults", r.usual, &usual); err != nil {
			return err
		}
		for range pairs {
			if err := one("baseline", r.base, &base); err != nil {
				return err
			}
			if err := one("relay   ", r.ours, &ours); err != nil {
				return err
			}
		}
		if pairs > 1 {
			return one("baseline", r.base, &base)
		}
		return nil
	}
	if r.around != nil {
		err = r.around(ctx, measure)
	} else {
		err = measure()
	}
	for _, f := range r.figures {
		one := result{title: r.title, figure: f, base: f.of(base), ours: f.of(ours), usual: f.of(usual)}
		if median(one.base) == 0 { // the baseline has no such thing
			one.base = nil
		}
		found = append(found, one)
	}
	return found, err
}

// say is an outcome in one line.
func (all figures) say(o outcome) string {
	var parts []string
	for _, f := range all {
		parts = append(parts, f.show(f.pick(o)))
	}
	return strings.Join(parts, ", ")
}

// of are the values of a figure.
func (f figure) of(all []outcome) (values []float64) {
	for _, o := range all {
		values = append(values, f.pick(o))
	}
	return values
}

// result is a figure with what was measured: one line of the report.
type result struct {
	figure
	title             string
	base, ours, usual []float64
}

// value is what must is about.
func (r result) value() float64 {
	switch {
	case r.worst:
		return slices.Max(r.ours)
	case r.alone || r.base == nil:
		return median(r.ours)
	default:
		return median(r.ours) / median(r.base)
	}
}

// text is a value, or what it must be, with its unit.
func (r result) text(v float64) string {
	if r.alone || r.base == nil {
		return r.show(v)
	}
	return decimals(v) + " ×"
}

// aa is the baseline against itself: the median of its odd runs against that of its even ones, as a
// share.
func (r result) aa() float64 {
	if len(r.base) < 2 || r.alone {
		return 0
	}
	var halves [2][]float64
	for i, v := range r.base {
		halves[i%2] = append(halves[i%2], v)
	}
	a, b := median(halves[0]), median(halves[1])
	return max(a, b)/min(a, b) - 1
}

// verdict is PASS, FAIL or VOID where something is asked.
func (r result) verdict() string {
	reaches := func(v float64) bool { return r.higher && v >= r.must || !r.higher && v <= r.must }
	v, aa := r.value(), r.aa()
	switch {
	case !r.asked:
		return ""
	case reaches(v*(1+aa)) != reaches(v/(1+aa)):
		return "VOID"
	case !reaches(v):
		return "FAIL"
	default:
		return "PASS"
	}
}

// runs says how often it was measured, and the A/A.
func (r result) runs() string {
	switch n := len(r.ours); {
	case n == 1:
		return "once"
	case r.aa() == 0:
		return fmt.Sprintf("%d runs", n)
	default:
		return fmt.Sprintf("%d pairs, A/A %.1f %%", n, 100*r.aa())
	}
}

// spread is a median with the smallest and the largest value.
func (f figure) spread(v []float64) string {
	switch len(v) {
	case 0:
		return ""
	case 1:
		return f.show(v[0])
	default:
		return fmt.Sprintf("%s (%s … %s)", f.show(median(v)), f.show(slices.Min(v)), f.show(slices.Max(v)))
	}
}

// The reports, in the order in which they are measured, and the columns of their short tables.
const (
	mainReport         = "main"
	inboxReport        = "inbox"
	leaderChangeReport = "leader-change"
	debeziumReport     = "debezium"
	repeatsReport      = "repeats"
)

var reports = []string{mainReport, inboxReport, leaderChangeReport, repeatsReport, debeziumReport}

type column struct {
	title string
	cell  func(result) string
}

var (
	oursMedian  = func(r result) string { return r.show(median(r.ours)) }
	baseMedian  = func(r result) string { return r.shown(r.base) }
	usualMedian = func(r result) string { return r.shown(r.usual) }
	columns     = map[string][]column{
		mainReport: {{"Relay", oursMedian}, {"Baseline", baseMedian}, {"Ratio", func(r result) string {
			if r.base == nil {
				return dash
			}
			return decimals(r.value())
		}}},
		inboxReport:        {{"inbox", oursMedian}, {"without a database", baseMedian}},
		leaderChangeReport: {{"median", oursMedian}, {"worst", func(r result) string { return r.show(slices.Max(r.ours)) }}},
		repeatsReport: {
			{"median", oursMedian},
			{"worst", func(r result) string { return r.show(slices.Max(r.ours)) }},
			{"events, all", func(r result) string { return r.show(sum(r.ours)) }},
		},
		debeziumReport: {{"cdc-relay", oursMedian}, {"Debezium, tuned", baseMedian}, {"its defaults", usualMedian}},
	}
)

const dash = "–"

func (r result) shown(v []float64) string {
	if len(v) == 0 {
		return dash
	}
	return r.show(median(v))
}

// report is what was measured of one kind on one broker.
type report struct {
	name    string
	kind    kind
	quick   bool
	machine []string
	began   time.Time
	results []result
	whole   bool // no row was left out
}

// publish writes the report to out and, when it is whole, to its file. The error is errMissed when
// something that must hold does not. A smoke run judges nothing.
func (rep report) publish(out io.Writer) error {
	text := rep.markdown(time.Since(rep.began))
	fmt.Fprint(out, text)
	if rep.quick {
		return nil
	}
	if rep.whole && rep.name != repeatsReport { // its counts are in docs/guarantees.md
		if err := os.WriteFile(resultFile(rep.kind.sink, rep.name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("save report: %w", err)
		}
	}
	if slices.ContainsFunc(rep.results, func(r result) bool { v := r.verdict(); return v == "FAIL" || v == "VOID" }) {
		return errMissed
	}
	return nil
}

func resultFile(sink, report string) string {
	if report == mainReport {
		return "bench/results/" + sink + ".md"
	}
	return "bench/results/" + sink + "-" + report + ".md"
}

func (rep report) markdown(took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmark: %s, %s\n\n", rep.kind.name, rep.name)
	for _, line := range rep.machine {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	fmt.Fprintf(&b, "- %s, took %s\n\n", rep.began.UTC().Format("2006-01-02 15:04 UTC"), took.Round(time.Second))
	b.WriteString("Everything runs on this one machine. Numbers are medians (smallest … largest). A/A is the baseline against itself,\n" +
		"odd runs against even ones; a row is void when it would pass or fail against a baseline that differs by as much.\n" +
		"How it is measured: `go doc ./bench`.\n\n" +
		"| | measured | must | relay | baseline | its defaults | runs | verdict |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range rep.results {
		must, verdict := "", r.verdict()
		if r.asked {
			must = r.text(r.must)
		}
		if rep.quick && r.asked {
			verdict = "smoke"
		}
		fmt.Fprintf(&b, "| %s: %s | %s | %s | %s | %s | %s | %s | %s |\n", r.title, r.name, r.text(r.value()), must,
			r.spread(r.ours), r.spread(r.base), r.spread(r.usual), r.runs(), verdict)
	}
	head, lines := "| "+measuredHead, ""
	for _, c := range columns[rep.name] {
		head += " | " + c.title
	}
	for _, r := range rep.results {
		if r.short == "" {
			continue
		}
		lines += "| " + r.short
		for _, c := range columns[rep.name] {
			lines += " | " + c.cell(r)
		}
		lines += " |\n"
	}
	return b.String() + shortBegins + head + " |\n" + strings.Repeat("|---", len(columns[rep.name])+1) + "|\n" + lines
}

func sum(v []float64) (all float64) {
	for _, one := range v {
		all += one
	}
	return all
}

func median(v []float64) float64 { return quantile(v, 0.5) }

// quantile is the value that the share q of the values does not exceed; between two, their mean for
// the median.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(v))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

func decimals(v float64) string {
	if math.Abs(v) >= 10 || v == 0 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func perSecond(v float64) string {
	if v >= 10_000 {
		return fmt.Sprintf("%.1fk/s", v/1000)
	}
	return fmt.Sprintf("%.0f/s", v)
}

func mebibytes(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// lapse is a time from milliseconds to seconds.
func lapse(seconds float64) string {
	switch {
	case seconds >= 1:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds >= 0.01:
		return fmt.Sprintf("%.0f ms", 1e3*seconds)
	default:
		return fmt.Sprintf("%.2f ms", 1e3*seconds)
	}
}

// usedTime is processor time, of little and of much.
func usedTime(micros float64) string {
	if micros >= 100 {
		return fmt.Sprintf("%.0f µs", micros)
	}
	return fmt.Sprintf("%.1f µs", micros)
}
