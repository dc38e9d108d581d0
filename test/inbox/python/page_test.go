// Package python runs the consumer in Python of examples/python, which docs/consuming-python.md
// shows, against real servers.
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
	if len(shown) < 2 {
		t.Errorf("the page shows %d pieces of the program", len(shown))
	}
}

// documented are the page's pieces of code in a language.
func documented(t *testing.T, language string) (pieces []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/consuming-python.md")
	await.Must(t, err)
	for _, piece := range strings.Split(string(text), "```"+language+"\n")[1:] {
		code, _, _ := strings.Cut(piece, "```")
		pieces = append(pieces, code)
	}
	return pieces
}
