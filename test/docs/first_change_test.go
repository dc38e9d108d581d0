package docs

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// The changes of docs/first-change.md apply to the code as it is, and are small: a metric touches
// three files, a key three and a test of what it does, a broker's answer four. One that does not
// apply is made again, in a copy: git diff -U2.
func TestFirstChangesApply(t *testing.T) {
	changes := pages.Fences(pages.Text(t, "docs/first-change.md"), "diff")
	if len(changes) != 3 {
		t.Fatalf("there are %d changes, want 3", len(changes))
	}
	for i, most := range []int{3, 4, 4} {
		diff := changes[i]
		apply := exec.CommandContext(t.Context(), "git", "apply", "--check", "-")
		apply.Dir, apply.Stdin = pages.Root(), strings.NewReader(diff.Text)
		if out, err := apply.CombinedOutput(); err != nil {
			t.Errorf("docs/first-change.md:%d: %v\n%s", diff.Line, err, out)
		}
		if files := strings.Count(diff.Text, "\n+++ b/"); files > most {
			t.Errorf("docs/first-change.md:%d: the change touches %d files, want %d at most", diff.Line, files, most)
		}
	}
}
