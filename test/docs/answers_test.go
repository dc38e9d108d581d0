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

// Every answer of a broker is in a list with its class and reason, and has tests that exist. Every
// reason is in one.
func TestBrokerAnswersAreDocumented(t *testing.T) {
	reasons := matches(`(?m)^\t\w+ +Reason += "(.+?)"`, pages.Text(t, "internal/sink/outcome.go"))
	if len(reasons) < 13 {
		t.Fatalf("only %d reasons were found", len(reasons))
	}
	documented := map[string]bool{}
	for _, b := range brokers {
		exists := pages.TestsIn(t, b.dir, "test/fault")
		rows := answersIn(pages.Section(t, "docs/failure-modes.md", b.heading))
		if len(rows) < 18 {
			t.Fatalf("%s: %d answers", b.heading, len(rows))
		}
		answers := map[string]bool{}
		for _, a := range rows {
			answers[a.answer] = true
			checkReasons(t, a, reasons, documented)
			checkTests(t, a.answer, b.tests[a.answer], exists)
		}
		for answer := range b.tests {
			if !answers[answer] {
				t.Errorf("%s does not have %q", b.heading, answer)
			}
		}
	}
	for _, reason := range reasons {
		if !documented[reason] {
			t.Errorf("no answer has the reason %s", reason)
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

// answer is an item of a list of answers: **answer** (`class`, `reason`): what the relay does.
type answer struct{ answer, class, reasons string }

func answersIn(text string) (all []answer) {
	text = strings.ReplaceAll(text, "\n  ", " ") // items are wrapped
	for _, found := range regexp.MustCompile("(?m)^- \\*\\*(.+?)\\*\\* \\(`([a-z]+)`(.*?)\\): ").FindAllStringSubmatch(text, -1) {
		all = append(all, answer{found[1], found[2], found[3]})
	}
	return all
}

// checkReasons checks the class and the reasons of one answer.
func checkReasons(t *testing.T, a answer, reasons []string, documented map[string]bool) {
	t.Helper()
	refusal := slices.Contains([]string{sink.Destination.String(), sink.Transient.String(), sink.Permanent.String()}, a.class)
	if !refusal && a.class != "confirmed" && a.class != "unavailable" {
		t.Errorf("%s: class %s", a.answer, a.class)
	}
	named := matches("`([a-z_]+)`", a.reasons)
	if refusal != (len(named) > 0) {
		t.Errorf("%s: %s, and the reasons %q", a.answer, a.class, a.reasons)
	}
	for _, reason := range named {
		if documented[reason] = true; !slices.Contains(reasons, reason) {
			t.Errorf("%s: there is no reason %s", a.answer, reason)
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
