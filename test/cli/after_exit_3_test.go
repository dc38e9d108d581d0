// This file checks "Every finding" in docs/failure-modes.md: each exit 3 of the code is there, with
// what may be missing and what to run, and has tests that exist. TestAfterExit3 plays the findings.
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

// exit3 is one finding of the page.
type exit3 struct {
	messages []string // what the message says; … stands for anything
	reason   string
	command  string // what the page says to run
	tests    string // of findingTests
}

// findingTests are the tests of each finding, by its first message. They are in test/cli, where no
// other folder is named.
var findingTests = map[string]string{
	`slot "…" no longer exists`:                                                                     "TestAfterExit3/slot dropped, TestRecover",
	`slot "…" does not exist here: it was read from system …`:                                       "TestAfterExit3/slot missing on another system; internal/replication: TestSeveralHosts",
	`slot "…" was invalidated by the server`:                                                        "internal/replication: TestSlotInvalidatedByTheServer",
	`slot "…" was being made again, and that was not completed`:                                     "TestAfterExit3/slot half made",
	`cdc_relay.slots no longer has a row for slot "…"`:                                              "internal/replication: TestTeardownUnderAStandby",
	`slot "…" is at …, but no relay ever reported more than …`:                                      "TestAfterExit3/slot created again",
	`and was moved meanwhile from … to …`:                                                           "internal/replication: TestSlotMovedByAProgramThatLeaves",
	`slot "…" was read with publication "…", source.publication now names "…"`:                      "TestAfterExit3/another publication",
	`slot "…" belongs to system …, this server is system …`:                                         "TestAfterExit3/another system, TestAfterExit3/a copy",
	`slot "…" was left on timeline …, this server is on timeline …`:                                 "TestAfterExit3/another timeline; internal/replication/slot: TestPromotionIsProven",
	`slot "…" exists, but no relay has used it`:                                                     "TestAfterExit3/slot of nobody",
	`table … is not used: … belongs to role …`:                                                      "internal/replication/setup: TestTableOfSomebodyElse",
	`slot "…" is a … slot of plugin "…", not pgoutput`:                                              "internal/replication: TestSlotOfAnotherKind",
	`slot "…" is active for "…" (role …), which is not a cdc-relay`:                                 "internal/replication: TestSlotHeldByAnotherProgram",
	`slot "…" does not exist and source.create is false`:                                            "TestNothingIsMadeWithoutCreate",
	`publication "…" does not exist and source.create is false`:                                     "TestNothingIsMadeWithoutCreate",
	`publication "…" does not exist`:                                                                "TestAfterExit3/publication dropped",
	`publication "…" was dropped and created again`:                                                 "TestAfterExit3/publication created again",
	`publication "…" does not publish inserts`:                                                      "TestAfterExit3/no inserts",
	`publication "…" sends the partitions of … under their own names`:                               "TestAfterExit3/partitions under their own names",
	`publication "…" does not contain table …`:                                                      "TestAfterExit3/table taken out",
	`publication "…" hides rows of table …: it has the row filter …`:                                "TestAfterExit3/row filter",
	`publication "…" hides columns of table …: its column list is without …`:                        "TestAfterExit3/column list",
	`publication "…" had table … taken out and put back`:                                            "TestAfterExit3/table put back",
	`publication "…" was altered`:                                                                   "TestAfterExit3/publication altered",
	`table … does not exist`:                                                                        "TestAfterExit3/table renamed",
	`table … (OID …) was dropped and created again (OID …)`:                                         "TestAfterExit3/table created again",
	`table … (OID …) was renamed and another one (OID …) took its name`:                             "TestAfterExit3/another table of its name",
	`table … has tables that inherit from it`:                                                       "TestAfterExit3/inherited",
	`table … has partitions or heirs whose rows are not in the WAL`:                                 "TestAfterExit3/partition not logged",
	`slot "…" may have rows of former partitions of table …`:                                        "TestAfterExit3/former partitions",
	`table … (OID …) was dropped and created again (OID …); the publication sends the rows of both`: "TestAfterExit3/table replaced",
	`slot "…" has rows of another table that was named …`:                                           "TestAfterExit3/had the name for a while",
	`publication "…" lists table …, which is not in source.tables`:                                  "TestAfterExit3/table listed",
	`slot "…" has relayed table …, which is no longer in source.tables`:                             "TestAfterExit3/table left out",
	`slot "…" has relayed table … on another server, and it is not in source.tables`:                "TestAnotherSystem/the file names one of two tables",
	`publication "…" sent rows of table … (OID …) when they were committed`:                         "TestAfterExit3/table listed for a while",
	`rows of table … (OID …), a partition of …, wait in slot "…" under the partition's own name`:    "TestAfterExit3/rows of a partition",
	`slot "…" has relayed messages with the prefix "…", which is no longer source.message_prefix`:   "TestAfterExit3/prefix left out",
	`the server went back to an earlier state while the relay ran`:                                  "internal/replication: TestRolledBackServer",
	`the replication stream contradicts what it sent before`:                                        "internal/relay: TestStories",
	`tables of schema cdc_relay are UNLOGGED`:                                                       "TestAfterExit3/relay's table not logged",
	`schema cdc_relay belongs to role …`:                                                            "TestSchemaOfSomebodyElse",
	`role …, which is to own the schema cdc_relay, may log in`:                                      "internal/replication: TestInitWithoutSuperuser, TestHandOverOfPlantedFunctions",
	`the takeover by slot "…" from slot "…" is not complete`:                                        "TestTakeover",
	`cdc-relay takeover`: "TestTakeover; internal/replication: TestTakeoverIsRefused, TestTakeoverFromASlotThatIsGone",
}

var (
	findingItem  = regexp.MustCompile("^- (.+?) \\(`([a-z_]+)`\\): (.+)$")
	findingLines = regexp.MustCompile("\n(- .*(?:\n  .*)*)")
	newLines     = regexp.MustCompile(`\n *`)
)

// exit3Rows are the findings of the page. Each stands in a group that says what may be missing and
// what to run. What an item has of its own to accept counts more than what the group has.
func exit3Rows(t *testing.T) (rows []exit3) {
	t.Helper()
	_, section, ok := strings.Cut(document(t, "docs/failure-modes.md"), "\n## Every finding\n")
	if !ok {
		t.Fatal("the page has no such section")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, group := range strings.Split(section, "\n### ")[1:] {
		title, _, _ := strings.Cut(group, "\n")
		_, run, ok := strings.Cut(group, "\n**Run:** ")
		if !ok || !strings.Contains(group, "\n**May be missing:** ") {
			t.Errorf("%q does not say what may be missing, or what to run", title)
		}
		items := findingLines.FindAllStringSubmatch(group, -1)
		if len(items) == 0 {
			t.Errorf("%q has no finding", title)
		}
		for _, item := range items {
			parts := findingItem.FindStringSubmatch(newLines.ReplaceAllString(item[1], " "))
			if parts == nil {
				t.Fatalf("no message, reason and text: %s", item[1])
			}
			row := exit3{messages: inCode(parts[1]), reason: parts[2], command: newLines.ReplaceAllString(run, " ")}
			if strings.Contains(parts[3], "`cdc-relay accept ID") {
				row.command = parts[3]
			}
			row.tests = findingTests[row.messages[0]]
			rows = append(rows, row)
		}
	}
	return rows
}

// inCode is what a text has in backquotes.
func inCode(text string) (all []string) {
	for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		all = append(all, code[1])
	}
	return all
}

// says reports whether a message has what a finding says of it.
func (e exit3) says(message string) bool {
	return slices.ContainsFunc(e.messages, func(m string) bool {
		return regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(m), "…", ".+?")).MatchString(message)
	})
}

// Every finding of the page is a message of the code and has tests that exist, and every reason of
// an exit 3 has a finding.
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
				t.Errorf("there are two findings of %q", m)
			}
			seen[m] = true
		}
		row.checkTests(t)
	}
	for message := range findingTests {
		if !seen[message] {
			t.Errorf("the page has no finding %q", message)
		}
	}
	for _, reason := range exit3Reasons(t, source) {
		if !documented[reason] {
			t.Errorf("the reason %s has no finding", reason)
		}
		delete(documented, reason)
	}
	for reason := range documented {
		t.Errorf("no exit 3 has the reason %s", reason)
	}
}

// checkTests wants tests of the finding, all of which exist.
func (e exit3) checkTests(t *testing.T) {
	t.Helper()
	if e.tests == "" {
		t.Errorf("%v has no test", e.messages)
		return
	}
	dir := "test/cli"
	for part := range strings.SplitSeq(e.tests, ";") {
		if where, tests, other := strings.Cut(part, ":"); other {
			dir, part = strings.TrimSpace(where), tests
		}
		exists := testsIn(t, dir)
		for test := range strings.SplitSeq(part, ",") {
			name, of, _ := strings.Cut(strings.TrimSpace(test), "/")
			if source, ok := exists[name]; !ok || of != "" && !strings.Contains(source, strconv.Quote(of)) {
				t.Errorf("%v: there is no test %q in %s", e.messages, test, dir)
			}
		}
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
