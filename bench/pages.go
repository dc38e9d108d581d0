// The tables of the pages: they are made of the reports, and no number in them is written by hand.
package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	measuredHead = "Measured"
	shortBegins  = "\n## In short\n\n"
)

// tablePages are the pages with tables of the reports.
var tablePages = []string{"README.md", "docs/performance.md"}

// tablePlace is where a table stands: the names of one report or of several, which are joined line
// by line.
var tablePlace = regexp.MustCompile(`(?s)<!-- bench: ([a-z -]+) -->\n.*?<!-- end of bench -->`)

// rewritePages writes the tables again.
func rewritePages() error {
	for _, path := range tablePages {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read page: %w", err)
		}
		made, err := withTables(string(text), readReport)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(path, []byte(made), 0o644); err != nil {
			return fmt.Errorf("write page: %w", err)
		}
	}
	return nil
}

func readReport(name string) (string, error) {
	text, err := os.ReadFile("bench/results/" + name + ".md")
	return string(text), err
}

// withTables is a page with the tables of the reports that there are now.
func withTables(page string, read func(name string) (string, error)) (string, error) {
	var failed error
	made := tablePlace.ReplaceAllStringFunc(page, func(found string) string {
		names := tablePlace.FindStringSubmatch(found)[1]
		var reports []string
		for _, name := range strings.Fields(names) {
			text, err := read(name)
			failed = errors.Join(failed, err)
			reports = append(reports, text)
		}
		return fmt.Sprintf("<!-- bench: %s -->\n%s<!-- end of bench -->", names, joined(reports))
	})
	return made, failed
}

// joined is the short tables of reports, side by side. What one of them has not is a dash.
func joined(reports []string) string {
	head, widths := []string{measuredHead}, []int{}
	var measures []string
	cells := map[string][][]string{}
	for i, text := range reports {
		_, table, _ := strings.Cut(text, shortBegins)
		lines := strings.Split(strings.TrimSpace(table), "\n")
		titles := cellsOf(lines[0])[1:]
		widths = append(widths, len(titles))
		if len(reports) > 1 {
			broker, _, _ := strings.Cut(strings.TrimPrefix(text, "# Benchmark: "), ",")
			titles[0] = broker + ": " + titles[0]
		}
		head = append(head, titles...)
		for _, line := range lines[min(2, len(lines)):] {
			found := cellsOf(line)
			if cells[found[0]] == nil {
				measures = append(measures, found[0])
				cells[found[0]] = make([][]string, len(reports))
			}
			cells[found[0]][i] = found[1:]
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n%s|\n", strings.Join(head, " | "), strings.Repeat("|---", len(head)))
	for _, measure := range measures {
		line := []string{measure}
		for i, width := range widths {
			found := cells[measure][i]
			if found == nil {
				found = slices.Repeat([]string{dash}, width)
			}
			line = append(line, found...)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
	}
	return b.String()
}

// cellsOf are the cells of a line of a table.
func cellsOf(line string) []string { return strings.Split(strings.Trim(line, "| \n"), " | ") }
