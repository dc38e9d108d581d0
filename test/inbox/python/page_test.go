// Package python runs the consumer in Python of examples/python, which docs/consuming.md shows,
// against real servers.
package python

import (
	"os"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// What the page shows of the program is what the program has.
func TestPageShowsTheProgram(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("../../../examples/python/consumer.py")
	await.Must(t, err)
	shown := documented(t, "python")
	for _, piece := range shown {
		if !strings.Contains(string(program), piece) {
			t.Errorf("the program does not have:\n%s", piece)
		}
	}
	if len(shown) == 0 {
		t.Error("the page shows nothing of the program")
	}
}

// documented are the pieces of code in a language that the page's section on Python has.
func documented(t *testing.T, language string) (pieces []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/consuming.md")
	await.Must(t, err)
	_, section, found := strings.Cut(string(text), "\n## Python\n")
	if !found {
		t.Fatal("the page has no section on Python")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, piece := range strings.Split(section, "```"+language+"\n")[1:] {
		code, _, _ := strings.Cut(piece, "```")
		pieces = append(pieces, code)
	}
	return pieces
}
