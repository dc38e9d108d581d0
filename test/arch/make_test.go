package arch

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The tests that take minutes, and need the real Debezium, are no part of make test, nor twice of make test-all; every other one is part
// of it.
func TestLongTestsAreNoPartOfMakeTest(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	left := regexp.MustCompile(`(?m)^(PACKAGES|PLAIN_PACKAGES) .*grep -vE '([^']+)'`).FindAllStringSubmatch(string(makefile), -1)
	if len(left) != 2 {
		t.Fatalf("the Makefile has %d lists of packages by grep -vE, want 2", len(left))
	}
	all := list(t)
	for _, l := range left {
		out := regexp.MustCompile(strings.ReplaceAll(l[2], "$$", "$"))
		for _, p := range all {
			_, at, inTest := strings.Cut(p.ImportPath, "/test/")
			first, _, _ := strings.Cut(at, "/")
			long := first == "long" || first == "soak"
			if byName := at == "fault" || at == "cli"; inTest && out.MatchString(p.ImportPath) != (long || byName) {
				t.Errorf("%s leaves %s out: %v", l[1], p.ImportPath, !long)
			}
		}
	}
}
