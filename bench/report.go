// The report: a Markdown table of what was measured, and whether it is what it must be.
package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// result is one line of the report.
type result struct {
	name       string
	ours, base string  // absolute numbers: the relay's, and the baseline's where there is one
	value      float64 // what must and aim are about
	unit       string
	must, aim  float64 // 0: nothing is asked, unless none
	none       bool    // value must be 0
	aimText    string  // how the aim reads; "" = the number
	higher     bool    // value has to reach must, else to stay below it
	aa         float64 // the baseline against itself; 0: there is none
	void       bool
	once       bool // measured once
	pairs      int
	note       string
	cell       bool // of the matrix
	// how the row is called in the short table of the contest; "": it is not there
	short string
	usual string // Debezium Server with its default settings, in the contest

	baseMedian float64
}

// verdict is PASS, FAIL or VOID where something is asked.
func (r result) verdict() string {
	switch {
	case !r.asked():
		return ""
	case r.void:
		return "VOID"
	case !r.reaches(r.must):
		return "FAIL"
	case r.reaches(r.aim):
		return "PASS, aim reached"
	default:
		return "PASS"
	}
}

// asked reports whether the value must be anything.
func (r result) asked() bool { return r.must != 0 || r.none }

func (r result) reaches(bound float64) bool {
	if r.higher {
		return r.value >= bound
	}
	return r.value <= bound
}

func (r result) number() string { return number(r.value) + " " + r.unit }

func number(v float64) string {
	if math.Abs(v) >= 10 || v == 0 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// summary is the result in one line.
func (r result) summary() string {
	parts := []string{r.number(), r.ours}
	if r.base != "" {
		parts = append(parts, "baseline "+r.base)
	}
	for _, p := range []string{r.spread(), r.note, r.verdict()} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "; ")
}

// spread says how often it was measured, and the A/A.
func (r result) spread() string {
	switch {
	case r.once:
		return "once"
	case r.aa == 0:
		return fmt.Sprintf("%d runs", r.pairs)
	default:
		return fmt.Sprintf("%d pairs, A/A %.1f %%", r.pairs, 100*r.aa)
	}
}

// report is everything that was measured.
type report struct {
	broker, cells string // name of the broker; what the ratio of a cell is
	quick, full   bool
	contest       bool // with Debezium Server

	machine []string
	began   time.Time
	took    time.Duration
	results []result
	skipped []string // cells there was no time for
}

// publish writes the report to out and to the file of the options. The error is errMissed when
// something that must hold does not.
func (rep report) publish(opt options, out io.Writer) error {
	rep.took = time.Since(rep.began)
	if err := rep.write(out); err != nil {
		return err
	}
	if opt.name != "" {
		if err := rep.save(filepath.Join("bench", "results", opt.name+".md")); err != nil {
			return err
		}
	}
	if opt.debezium && opt.name != "" {
		if err := saveComparison("."); err != nil {
			return err
		}
	}
	if rep.missed() {
		return errMissed
	}
	return nil
}

// voidWhen says which rows are void.
func (rep report) voidWhen() string {
	if rep.contest {
		return "a row is void when it would pass or fail against a baseline that differs by as much.\n" +
			"The baseline is Debezium Server, tuned"
	}
	return "beyond 10 % a row is void"
}

// missed reports whether something that must hold does not. A smoke run judges nothing.
func (rep report) missed() bool {
	for _, r := range rep.results {
		if v := r.verdict(); !rep.quick && (v == "FAIL" || v == "VOID") {
			return true
		}
	}
	return false
}

func (rep report) write(w io.Writer) error {
	_, err := io.WriteString(w, rep.markdown())
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// save writes the report to a file of the repository.
func (rep report) save(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	if err := os.WriteFile(path, []byte(rep.markdown()), 0o644); err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	return nil
}

func (rep report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmark: %s\n\n", rep.broker)
	for _, line := range rep.machine {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	fmt.Fprintf(&b, "- %s, took %s\n\n", rep.began.UTC().Format("2006-01-02 15:04 UTC"), rep.took.Round(time.Second))
	if rep.quick {
		b.WriteString("A smoke run: its numbers say nothing.\n\n")
	}
	b.WriteString("Everything runs on this one machine. Numbers are medians (smallest … largest). A/A is the baseline against itself,\n" +
		"odd runs against even ones; " + rep.voidWhen() + ". How it is measured: `go doc ./bench`.\n\n")
	rep.table(&b, false)
	rep.table(&b, true)
	b.WriteString(rep.short())
	if len(rep.skipped) > 0 {
		fmt.Fprintf(&b, "\nNot measured, for want of time: %s.\n", strings.Join(rep.skipped, ", "))
	}
	return b.String()
}

// table writes the rows with a must, or the cells of the matrix.
func (rep report) table(b *strings.Builder, cells bool) {
	any := false
	for _, r := range rep.results {
		if r.cell != cells {
			continue
		}
		if !any && cells {
			fmt.Fprintf(b, "\n## Cells: %s\n\n| | ratio | relay | baseline | measured | |\n|---|---|---|---|---|---|\n", rep.cells)
		} else if !any {
			b.WriteString("| | measured | must | aim | relay | baseline | runs | verdict |\n|---|---|---|---|---|---|---|---|\n")
		}
		any = true
		if cells {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", r.name, number(r.value), r.ours, r.base, r.spread(), r.note)
			continue
		}
		must, aim := "", ""
		if r.asked() {
			must, aim = number(r.must), r.aimText
			if aim == "" {
				aim = number(r.aim)
			}
		}
		ours := r.ours
		if r.note != "" {
			ours += "; " + r.note
		}
		verdict := r.verdict()
		if rep.quick && verdict != "" {
			verdict = "smoke"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", r.name, r.number(), must, aim, ours, r.base, r.spread(), verdict)
	}
}

// Units.

func perSecond(v float64) string {
	if v >= 10_000 {
		return fmt.Sprintf("%.1fk/s", v/1000)
	}
	return fmt.Sprintf("%.0f/s", v)
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.2f ms", 1e3*seconds) }

func microseconds(v float64) string { return fmt.Sprintf("%.2f µs", v) }

func micros(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Nanoseconds())/1e3) }

func mebibytes(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }
