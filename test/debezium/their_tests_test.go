package debezium

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
)

// theirTests is how many tests about the Event Router Debezium 3.6.1.Final has: EventRouterTest,
// AbstractEventRouterTest and JsonSchemaDataTest.
const theirTests = 44 + 9 + 4

// THEIRS.md names each of Debezium's own tests once, and what it says to show it
// exists: a case that is compared with real records where it says "same", one that is known to
// differ or to stop Debezium where it says "different".
func TestTheirTests(t *testing.T) {
	text, err := os.ReadFile("THEIRS.md")
	if err != nil {
		t.Fatal(err)
	}
	faults, err := os.ReadFile("../../internal/debezium/options_test.go")
	if err != nil {
		t.Fatal(err)
	}
	compared, stopping := map[string]bool{}, map[string]bool{}
	for _, g := range cases.All() {
		for _, c := range g.Cases {
			compared[g.Name+"/"+c.Name] = g.Stops == "" && c.Differs == ""
			stopping[g.Name+"/"+c.Name] = g.Stops != ""
		}
	}
	named := map[string]bool{}
	row := regexp.MustCompile(`(?m)^\| (\w+) \| (same|different|not applicable)(.*) \|(.*)\|$`)
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		test, verdict, how, shown := m[1], m[2], m[3], quoted.FindAllStringSubmatch(m[4], -1)
		if named[test] {
			t.Errorf("%s is there twice", test)
		}
		named[test] = true
		if verdict != "same" && !strings.HasPrefix(how, ": ") {
			t.Errorf("%s is %s: nobody says why", test, verdict)
		}
		if (len(shown) == 0) != (verdict == "not applicable") {
			t.Errorf("%s is %s, shown by %v", test, verdict, shown)
		}
		for _, s := range shown {
			switch {
			case strings.HasPrefix(s[1], "Test"):
				if !strings.Contains(string(faults), "func "+s[1]+"(") {
					t.Errorf("%s is shown by %s, which is not there", test, s[1])
				}
			case !compared[s[1]] && (verdict == "same" || !stopping[s[1]]):
				t.Errorf("%s is %s by case %s, which is not there or not compared", test, verdict, s[1])
			}
		}
	}
	if len(named) != theirTests {
		t.Errorf("%d of Debezium's tests are named, there are %d", len(named), theirTests)
	}
}
