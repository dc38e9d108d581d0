package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

var rewrite = flag.Bool("rewrite", false, "write test/INVARIANTS.md again")

// test/INVARIANTS.md is what the list says. ARCHITECTURE.md has each invariant on one line.
func TestInvariantsPage(t *testing.T) {
	var page, lines strings.Builder
	page.WriteString(head)
	for _, inv := range invariants {
		inv.write(t, &page)
		fmt.Fprintf(&lines, "- **%s** %s\n", inv.id, inv.short)
	}
	want := page.String()
	if *rewrite {
		must(t, os.WriteFile(filepath.Join(pages.Root(), "test/INVARIANTS.md"), []byte(want), 0o644))
	}
	if pages.Text(t, "test/INVARIANTS.md") != want {
		t.Error("test/INVARIANTS.md is not what the list says: go test ./test/docs -run TestInvariantsPage -rewrite")
	}
	if section := pages.Section(t, "ARCHITECTURE.md", "Invariants"); !strings.Contains(section, "\n\n"+lines.String()+"\n") {
		t.Errorf("ARCHITECTURE.md does not have these lines, and no others:\n%s", lines.String())
	}
}

// Each test that the list names exists in the folder that is named, or below it.
func TestInvariantsNameTheirTests(t *testing.T) {
	if len(invariants) != 11 {
		t.Errorf("there are %d invariants, want 11", len(invariants))
	}
	for i, inv := range invariants {
		if inv.id != fmt.Sprintf("I%d", i+1) || len(inv.tests) == 0 {
			t.Errorf("%s: is number %d and names %d folders", inv.id, i+1, len(inv.tests))
		}
		for _, in := range inv.tests {
			exists := pages.TestsIn(t, in.dir)
			for _, name := range strings.Fields(in.names) {
				if exists[name] == "" {
					t.Errorf("%s names %s, and there is no such test in %s", inv.id, name, in.dir)
				}
			}
		}
	}
}

const head = `# Invariants

What each promise says in full, which tests prove it, and which planted bugs those tests must notice. ARCHITECTURE.md has
the short list. Generated from test/docs/invariants_list_test.go and mutants/:
` + "`go test ./test/docs -run TestInvariantsPage -rewrite`" + `.
`

// write writes an invariant's part of the page.
func (inv *invariant) write(t *testing.T, page *strings.Builder) {
	t.Helper()
	fmt.Fprintf(page, "\n## %s\n\n%s\n\n", inv.id, wrap(inv.full, ""))
	for _, in := range inv.tests {
		fmt.Fprintf(page, "- %s\n", wrap("`"+in.dir+"`: "+strings.Join(strings.Fields(in.names), ", "), "  "))
	}
	if inv.also != "" {
		fmt.Fprintf(page, "- %s\n", wrap(inv.also, "  "))
	}
	bugs, err := filepath.Glob(filepath.Join(pages.Root(), "mutants", inv.id, "*.patch"))
	must(t, err)
	if len(bugs) == 0 {
		t.Errorf("%s has no planted bug", inv.id)
	}
	names := make([]string, len(bugs))
	for i, bug := range bugs {
		names[i] = strings.TrimSuffix(filepath.Base(bug), ".patch")
	}
	fmt.Fprintf(page, "\n%s\n", wrap(fmt.Sprintf("Planted bugs in `mutants/%s`, %d: %s.", inv.id, len(bugs), strings.Join(names, ", ")), ""))
}

// wrap breaks a text into lines of at most 118 columns; all but the first are indented.
func wrap(text, indent string) string {
	var b strings.Builder
	column := len(indent)
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > 118:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
