// Line breaks of messages.

package output

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// maxWidth is how long a line of a message is, on a terminal that is not narrower.
const maxWidth = 100

// Width is the room for a message on w.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return min(width, maxWidth)
		}
	}
	return maxWidth
}

// ForTerminal returns a line as it is printed to w. It is broken only on a terminal, so that a
// program gets the whole line.
func ForTerminal(w io.Writer, line string, hang int) string {
	if IsTerminal(w) {
		return Layout(line, Width(w), hang)
	}
	return line
}

// Layout puts each clause of a line that is longer than width on a line of its own, so that the fix
// is below the fault. Further lines are indented, by hang at least. It breaks nowhere else: the
// terminal wraps, and a command or a statement can be copied whole.
func Layout(message string, width, hang int) string {
	var out []string
	for line := range strings.Lines(strings.TrimRight(message, "\n")) {
		line = strings.TrimRight(line, "\n")
		if utf8.RuneCountInString(line) > width {
			text := strings.TrimLeft(line, " ")
			indent := strings.Repeat(" ", max(len(line)-len(text)+2, hang))
			line = line[:len(line)-len(text)] + strings.ReplaceAll(text, "; ", ";\n"+indent)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
