// This file checks docs/after-exit-3.md: each exit 3 of the code has a row, and each row names
// tests that exist. TestAfterExit3 plays the rows.
package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// exit3 is one row of docs/after-exit-3.md.
type exit3 struct {
	messages []string // what the message says; … stands for anything
	reason   string
	command  string // the cell
	tests    string // the cell
}

// exit3Rows are the rows of the page.
func exit3Rows(t *testing.T) (rows []exit3) {
	t.Helper()
	_, section, ok := strings.Cut(document(t, "docs/after-exit-3.md"), "\n## Every finding\n")
	if !ok {
		t.Fatal("the page has no such section")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range regexp.MustCompile(`(?m)^\|(.*)\|$`).FindAllStringSubmatch(section, -1)[2:] {
		cells := strings.Split(row[1], "|")
		if len(cells) != 6 {
			t.Fatalf("%d cells in %s", len(cells), row[1])
		}
		rows = append(rows, exit3{inCode(cells[0]), strings.Trim(cells[1], " `"), cells[4], cells[5]})
	}
	return rows
}

// inCode is what a cell has in backquotes.
func inCode(cell string) (all []string) {
	for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		all = append(all, code[1])
	}
	return all
}

// says reports whether a message has what a row says of it.
func (e exit3) says(message string) bool {
	return slices.ContainsFunc(e.messages, func(m string) bool {
		return regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(m), "…", ".+?")).MatchString(message)
	})
}

// Every row of the page is a message of the code and names tests that exist, and every reason of an
// exit 3 has a row.
func TestFindingsAreDocumented(t *testing.T) {
	t.Parallel()
	source := sources(t)
	documented := map[string]bool{}
	seen := map[string]bool{}
	for _, row := range exit3Rows(t) {
		documented[row.reason] = true
		for _, m := range row.messages {
			longest := slices.MaxFunc(regexp.MustCompile("…|; ").Split(m, -1), func(a, b string) int { return len(a) - len(b) })
			if longest = strings.Trim(longest, ` ")`); row.reason != "takeover" && !strings.Contains(source, longest) {
				t.Errorf("no message has %q", longest)
			}
			if seen[m] {
				t.Errorf("there are two rows of %q", m)
			}
			seen[m] = true
		}
		dir, count := "test/cli", 0
		for part := range strings.SplitSeq(row.tests, ";") {
			if where, tests, other := strings.Cut(part, ":"); other {
				dir, part = strings.Trim(where, " `"), tests
			}
			exists := testsIn(t, dir)
			for test := range strings.SplitSeq(part, ",") {
				name, of, _ := strings.Cut(strings.TrimSpace(test), "/")
				if source, ok := exists[name]; !ok || of != "" && !strings.Contains(source, strconv.Quote(of)) {
					t.Errorf("%v: there is no test %q in %s", row.messages, test, dir)
				}
				count++
			}
		}
		if count == 0 {
			t.Errorf("%v names no test", row.messages)
		}
	}
	for _, reason := range exit3Reasons(t, source) {
		if !documented[reason] {
			t.Errorf("the reason %s has no row", reason)
		}
		delete(documented, reason)
	}
	for reason := range documented {
		t.Errorf("no exit 3 has the reason %s", reason)
	}
}

// exit3Reasons are the reasons of all Stops with exit code 3 in the code.
func exit3Reasons(t *testing.T, source string) (reasons []string) {
	t.Helper()
	made := regexp.MustCompile(`Code:\s+event\.ExitOperator,\s+Reason:\s+([^,\n]+),|TakeoverStop\(event\.ExitOperator`).FindAllStringSubmatch(source, -1)
	if all := strings.Count(source, "event.ExitOperator"); all != len(made)+len(regexp.MustCompile(`[!=]= event\.ExitOperator`).FindAllString(source, -1)) {
		t.Errorf("an event.ExitOperator of %d is neither compared with nor that of a Stop", all)
	}
	for _, stop := range made {
		switch of := stop[1]; of {
		case "":
			reasons = append(reasons, "takeover")
		case "NotConfigured":
			reasons = append(reasons, "not_configured")
		case `what + "_missing"`:
			reasons = append(reasons, "slot_missing", "publication_missing")
		default:
			reason, err := strconv.Unquote(of)
			if err != nil {
				t.Errorf("the reason %s: %v", of, err)
			}
			reasons = append(reasons, reason)
		}
	}
	slices.Sort(reasons)
	return slices.Compact(reasons)
}

// sources are the production files of the relay.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"internal", "cmd"} {
		must(t, filepath.WalkDir(filepath.Join("../..", dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		}))
	}
	return all.String()
}

// No page tells anybody to write the relay's own tables: that is what the commands are for. The
// table of requests is the operators' interface.
func TestNoSQLOnTheRelaysTables(t *testing.T) {
	t.Parallel()
	writes := regexp.MustCompile(`(?i)\b(UPDATE|INSERT\s+INTO|DELETE\s+FROM|TRUNCATE(\s+TABLE)?)\s+"?cdc_relay"?\."?(slots|progress|retry|dead_letter|gap|audit)\b|state\s*=\s*'adopt'`)
	count := 0
	for _, dir := range []string{"docs", "deploy", "examples", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"} {
		must(t, filepath.WalkDir(filepath.Join("../..", dir), func(path string, entry fs.DirEntry, err error) error {
			// what `init --print` prints: the schema itself
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "deploy/sql/02-relay.sql") {
				return err
			}
			count++
			text, err := os.ReadFile(path)
			for _, sql := range writes.FindAllString(string(text), -1) {
				t.Errorf("%s has %q", path, sql)
			}
			return err
		}))
	}
	if count < 40 {
		t.Errorf("only %d files were read", count)
	}
	for _, sql := range regexp.MustCompile("Fix: .*|Hint.*").FindAllString(sources(t), -1) {
		if writes.MatchString(sql) {
			t.Errorf("a message has %q", sql)
		}
	}
}
