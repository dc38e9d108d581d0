// The contest in short: a table in each report, and the table of the README that is made of them.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// inShort is a line of the short table.
type inShort struct{ measure, ours, tuned, usual string }

const (
	shortHead = "## In short\n\n| | cdc-relay | Debezium Server, tuned | Debezium Server, its defaults |\n|---|---|---|---|\n"
	dash      = "–"
)

// short is the table of the rows that the README has, "" when there are none.
func (rep report) short() string {
	var b strings.Builder
	for _, r := range rep.results {
		if r.short == "" {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("\n" + shortHead)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.short, middle(r.ours), middle(r.base), r.usual)
	}
	return b.String()
}

// middle is the median of a spread.
func middle(spread string) string {
	m, _, _ := strings.Cut(spread, " (")
	return m
}

// readShort reads the short table of a report.
func readShort(text string) (lines []inShort) {
	_, table, _ := strings.Cut(text, shortHead)
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			break
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		lines = append(lines, inShort{cells[0], cells[1], cells[2], cells[3]})
	}
	return lines
}

// contestNames are the reports of the contest, in the order of the README's columns.
var contestNames = []string{"debezium-rabbitmq", "debezium-kafka"}

// comparison is the README's table with its conditions, made of both reports. What has no number
// yet is a dash.
func comparison(reports []string) string {
	var measures []string
	found := map[string][]inShort{}
	for i, text := range reports {
		for _, line := range readShort(text) {
			if found[line.measure] == nil {
				measures = append(measures, line.measure)
				found[line.measure] = make([]inShort, len(reports))
			}
			found[line.measure][i] = line
		}
	}
	if len(measures) == 0 {
		return "Not measured yet.\n"
	}
	var b strings.Builder
	b.WriteString("| | RabbitMQ: cdc-relay | Debezium, tuned | its defaults | Kafka: cdc-relay | Debezium, tuned | its defaults |\n" +
		"|---|---|---|---|---|---|---|\n")
	for _, measure := range measures {
		fmt.Fprintf(&b, "| %s |", measure)
		for _, line := range found[measure] {
			for _, cell := range []string{line.ours, line.tuned, line.usual} {
				if cell == "" {
					cell = dash
				}
				fmt.Fprintf(&b, " %s |", cell)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString(conditions(reports))
	return b.String()
}

// What the README's table stands between.
const (
	tableBegins = "<!-- make bench-debezium writes the table below -->\n"
	tableEnds   = "<!-- and ends here -->\n"
)

// withTable is a text with another table in its place.
func withTable(text, table string) (string, error) {
	before, rest, ok := strings.Cut(text, tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !ok || !ends {
		return "", errors.New("README.md has no place for the table of the contest")
	}
	return before + tableBegins + table + tableEnds + after, nil
}

// contestReports are the reports that there are below the root of the repository.
func contestReports(root string) (reports []string, err error) {
	for _, name := range contestNames {
		text, err := os.ReadFile(filepath.Join(root, "bench", "results", name+".md"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read report: %w", err)
		}
		reports = append(reports, string(text))
	}
	return reports, nil
}

// saveComparison writes the README's table again.
func saveComparison(root string) error {
	reports, err := contestReports(root)
	if err != nil {
		return err
	}
	path := filepath.Join(root, "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read README: %w", err)
	}
	changed, err := withTable(string(text), comparison(reports))
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		return fmt.Errorf("write README: %w", err)
	}
	return nil
}
