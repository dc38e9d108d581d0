// Columns of a terminal.

package output

import (
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// columns counts as a terminal does: an escape sequence of ours has no width.
var columns = displaywidth.Options{ControlSequences: true}

// Columns is the width of a text on a terminal.
func Columns(s string) int { return columns.String(s) }

// Cut shortens a text to a width, tail included.
func Cut(s string, width int, tail string) string { return columns.TruncateString(s, width, tail) }

// Wrap breaks a text into lines at spaces, and within a word only when a line has no room for it.
func Wrap(s string, width int) []string {
	var out []string
	line := ""
	for i, word := range strings.Split(s, " ") {
		if i > 0 && Columns(line)+1+Columns(word) <= width {
			line += " " + word
			continue
		}
		if i > 0 {
			out = append(out, line)
		}
		for Columns(word) > width {
			head := hard(word, width)
			out, word = append(out, head), word[len(head):]
		}
		line = word
	}
	return append(out, line)
}

// hard is what of a word fits into a line: a character at least.
func hard(word string, width int) string {
	end, used := 0, 0
	for g := columns.StringGraphemes(word); g.Next(); end += len(g.Value()) {
		if used += g.Width(); used > width && end > 0 {
			break
		}
	}
	return word[:end]
}
