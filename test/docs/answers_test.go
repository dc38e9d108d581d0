package docs

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// brokers have a section of docs/failure-modes.md each, and a folder with tests.
var brokers = []struct {
	heading, dir string
	tests        map[string]string // by the answer, see answers_list_test.go
}{
	{"What RabbitMQ answers", "internal/sink/rabbit", rabbitMQAnswers},
	{"What Kafka answers", "internal/sink/kafka", kafkaAnswers},
}

// Every answer of a broker has a row, in a table of its class, with its reason, and tests that
// exist. Every reason has a row.
func TestBrokerAnswersAreDocumented(t *testing.T) {
	reasons := matches(`(?m)^\t\w+ +Reason += "(.+?)"`, pages.Text(t, "internal/sink/outcome.go"))
	if len(reasons) < 13 {
		t.Fatalf("only %d reasons were found", len(reasons))
	}
	documented := map[string]bool{}
	for _, b := range brokers {
		exists := pages.TestsIn(t, b.dir, "test/fault")
		answers := map[string]bool{}
		parts := strings.Split(pages.Section(t, "docs/failure-modes.md", b.heading), "\n**`")
		for _, part := range parts[1:] {
			class, rest, _ := strings.Cut(part, "`**")
			for _, cells := range tableRows(rest) {
				answers[cells[0]] = true
				checkReasons(t, class, cells, reasons, documented)
				checkTests(t, cells[0], b.tests[cells[0]], exists)
			}
		}
		if len(answers) < 18 {
			t.Errorf("%s: only %d answers were found", b.heading, len(answers))
		}
		for answer := range b.tests {
			if !answers[answer] {
				t.Errorf("%s has no row %q", b.heading, answer)
			}
		}
	}
	for _, reason := range reasons {
		if !documented[reason] {
			t.Errorf("the reason %s has no row", reason)
		}
	}
}

// tableRows are the cells of a text's tables, without their heads.
func tableRows(text string) (rows [][]string) {
	head := true
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			head = true
		case strings.HasPrefix(line, "|---"):
			head = false
		case !head:
			rows = append(rows, cells)
		}
	}
	return rows
}

// checkReasons checks the reasons of one row, in its second cell. A class that is no refusal has
// none.
func checkReasons(t *testing.T, class string, cells, reasons []string, documented map[string]bool) {
	t.Helper()
	switch class {
	case "confirmed", "unavailable":
		return
	case sink.Destination.String(), sink.Transient.String(), sink.Permanent.String():
	default:
		t.Errorf("%s: class %s", cells[0], class)
	}
	named := matches("`([a-z_]+)`", cells[1])
	if len(named) == 0 {
		t.Errorf("%s has no reason", cells[0])
	}
	for _, reason := range named {
		if documented[reason] = true; !slices.Contains(reasons, reason) {
			t.Errorf("%s: there is no reason %s", cells[0], reason)
		}
	}
}

// checkTests wants tests, all of which exist: names, or names of parts as TestX/part, separated by
// commas.
func checkTests(t *testing.T, of, tests string, exists map[string]string) {
	t.Helper()
	for test := range strings.SplitSeq(tests, ", ") {
		name, part, _ := strings.Cut(test, "/")
		if source, ok := exists[name]; !ok || part != "" && !strings.Contains(source, strconv.Quote(part)) {
			t.Errorf("%s: there is no test %q", of, test)
		}
	}
}

// Every exit code has one row, which names tests that exist.
func TestExitCodesAreDocumented(t *testing.T) {
	exists := pages.TestsIn(t, "test/cli", "test/long")
	rows := tableRows(pages.Section(t, "docs/reference.md", "Exit codes"))
	if len(rows) != 6 {
		t.Errorf("there are %d codes, want 0 to 5", len(rows))
	}
	for i, row := range rows {
		if row[0] != strconv.Itoa(i) {
			t.Errorf("row %d is about code %s", i, row[0])
		}
		checkTests(t, "exit "+row[0], strings.Join(regexp.MustCompile(`\bTest\w+`).FindAllString(strings.Join(row, " "), -1), ", "), exists)
	}
}
