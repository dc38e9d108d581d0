package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readResults are the reports in bench/results by name.
func readResults(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("results/*.md")
	if err != nil {
		t.Fatal(err)
	}
	reports := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		reports[strings.TrimSuffix(filepath.Base(file), ".md")] = string(text)
	}
	if len(reports) < 6 {
		t.Fatalf("bench/results has %d reports", len(reports))
	}
	return reports
}

// The figures of two commits cannot be compared, and those of a checkout with changes cannot be
// measured again.
func TestResultsAreOfOneCommit(t *testing.T) {
	commits := map[string][]string{}
	for name, text := range readResults(t) {
		commit := group(reportCommit, text)
		commits[commit] = append(commits[commit], name)
		if commit == "" || strings.HasSuffix(commit, "-dirty") {
			t.Errorf("%s is of the commit %q", name, commit)
		}
	}
	if len(commits) != 1 {
		t.Errorf("bench/results is of several commits: %v", commits)
	}
}

// measured are the figures with a unit, as the reports and the pages write them.
var measured = regexp.MustCompile(`\d[\d,.]*( |)(k/s|/s|µs|ms|MiB|×)`)

// Every figure in a table of docs/performance.md, and in the tables of sizing that say "measured",
// stands in a report.
func TestFiguresAreMeasured(t *testing.T) {
	var known []string
	for _, text := range readResults(t) {
		for _, figure := range measured.FindAllString(text, -1) {
			known = append(known, plain(figure))
		}
	}
	count := 0
	for page, heading := range map[string]string{"performance.md": "", "running.md": "\n## Sizing\n"} {
		text, err := os.ReadFile(filepath.Join("../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		_, section, found := strings.Cut(string(text), heading)
		if !found {
			t.Fatalf("%s has no section %q", page, heading)
		}
		if heading != "" {
			section, _, _ = strings.Cut(section, "\n## ")
		}
		for _, table := range strings.Split(section, "\n\n") {
			head, rows, _ := strings.Cut(strings.TrimSpace(table), "\n")
			if !strings.HasPrefix(head, "|") || !strings.Contains(strings.ToLower(head), "measured") {
				continue
			}
			for _, figure := range measured.FindAllString(rows, -1) {
				if count++; !slices.Contains(known, plain(figure)) {
					t.Errorf("%s has the figure %s, and no report has it", page, figure)
				}
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d figures were found", count)
	}
}

// plain is a figure without blanks and without the commas of thousands.
func plain(figure string) string {
	return strings.NewReplacer(" ", "", ",", "").Replace(figure)
}

func TestConditions(t *testing.T) {
	head := func(server, commit string) string {
		return "- PostgreSQL 15 (fsync off), " + server + ", Linux 6\n- A CPU, 2 cores, 4 kB of memory\n- commit " + commit + "\n- 2026-11-28 10:00 UTC, took 1s\n"
	}
	got := conditions([]string{head("RabbitMQ 3", "abc"), head("Kafka 4", "abc")})
	for _, part := range []string{"(A CPU, 2 cores, 4 kB of memory)", "PostgreSQL 15 (fsync off), RabbitMQ 3, Linux 6, Kafka 4.", "Commit abc, 2026-11-28."} {
		if !strings.Contains(strings.Join(strings.Fields(got), " "), part) {
			t.Errorf("%q is not in %s", part, got)
		}
	}
	if got := conditions([]string{head("RabbitMQ 3", "abc"), head("Kafka 4", "abd")}); got != "" {
		t.Errorf("reports of two commits have the conditions %s", got)
	}
}
