package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// The ways in ARCHITECTURE.md name functions that exist, in the file that they name. What follows
// in the last cell exists in the folder.
func TestWaysNameFunctionsThatExist(t *testing.T) {
	for heading, hops := range map[string]int{
		"A commit's way, with its events": 18, "A rejected event's way": 16, "Refused again, probed, handed over": 27, "Three more ways": 14,
	} {
		rows := tableRows(pages.Section(t, "ARCHITECTURE.md", heading))
		if len(rows) != hops {
			t.Errorf("%s has %d hops, want %d", heading, len(rows), hops)
		}
		for i, cells := range rows {
			if len(cells) != 5 || cells[0] != strconv.Itoa(i+1) {
				t.Fatalf("%s: hop %d is %q", heading, i+1, cells)
			}
			file := strings.Trim(cells[3], "`")
			if !strings.HasPrefix(file, "cmd/") {
				file = "internal/" + file
			}
			if name := strings.Trim(cells[2], "`"); !hasFunction(pages.Text(t, file), name) {
				t.Errorf("%s has no %s", file, name)
			}
			source := pages.Source(t, filepath.Dir(file), false)
			for _, name := range matches("`([a-z]\\w+)`", cells[4]) {
				if name != "confirmed_flush_lsn" && !strings.Contains(source, " "+name+"(") && !strings.Contains(source, ") "+name+"(") {
					t.Errorf("%s, %s: there is no function %s", heading, file, name)
				}
			}
		}
	}
}

// hasFunction reports whether a source file has a function, a method of a type, or an interface
// with it.
func hasFunction(source, name string) bool {
	typ, method, isMethod := strings.Cut(name, ".")
	if !isMethod {
		return strings.Contains(source, "\nfunc "+name+"(")
	}
	if regexp.MustCompile(`(?m)^func \(\w+ \*?` + typ + `\) ` + method + `\(`).MatchString(source) {
		return true
	}
	_, body, ok := strings.Cut(source, "\ntype "+typ+" interface {\n")
	body, _, _ = strings.Cut(body, "\n}")
	return ok && strings.Contains("\n"+body, "\n\t"+method+"(")
}

// Files and folders that ARCHITECTURE.md and CONTRIBUTING.md name exist, from the root or below
// internal.
func TestFilesThatAreNamedExist(t *testing.T) {
	count := 0
	for _, page := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		for _, name := range matches("`((?:internal|cmd|test|relay|retry|replication|sink|outbox|inbox|bench|mutants|tools)/[a-z0-9_/.-]+)`", pages.Text(t, page)) {
			count++
			if !exists(name) && !exists("internal/"+name) {
				t.Errorf("%s names %s, which does not exist", page, name)
			}
		}
	}
	if count < 40 {
		t.Errorf("only %d names of files were found", count)
	}
}

func exists(path string) bool {
	_, err := os.Stat(filepath.Join(pages.Root(), path))
	return err == nil
}
