// Output for people and for programs: color and line breaks on a terminal, plain text and JSON
// elsewhere.

package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
	"golang.org/x/term"

	"github.com/cdc-relay/cdc-relay/internal/printable"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// HasColor reports whether w is a terminal and NO_COLOR is not set.
func HasColor(w io.Writer) bool { return IsTerminal(w) && os.Getenv("NO_COLOR") == "" }

// JSON writes v as indented JSON.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(printable.JSON(w))
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// JSONLine writes v as one line of JSON.
func JSONLine(w io.Writer, v any) error { return json.NewEncoder(printable.JSON(w)).Encode(v) }

// Clean makes a text of others fit for a line of output: nothing in it can control the terminal.
func Clean(s string) string { return printable.Line(s) }

// CleanLines is Clean for a text that may have several lines.
func CleanLines(s string) string { return printable.Lines(s) }

// Progress is one line on a terminal that is overwritten again and again, to show how far something
// is. If the output is no terminal, it prints nothing.
type Progress struct {
	W     io.Writer
	width int // of the line that is shown
}

// Show replaces the line by another one.
func (p *Progress) Show(line string) {
	line = Clean(line)
	if !IsTerminal(p.W) {
		return
	}
	fmt.Fprintf(p.W, "\r%s%s", line, strings.Repeat(" ", max(p.width-len(line), 0)))
	p.width = len(line)
}

// Clear removes the line, before other output is printed.
func (p *Progress) Clear() {
	if p.width > 0 {
		fmt.Fprintf(p.W, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}

// maxWidth is the longest line of a message, on a terminal that is at least that wide.
const maxWidth = 100

// terminalWidth returns the width of the terminal w, or defaultWidth when it does not tell.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return defaultWidth
}

// Width returns how long a line of a message to w may be.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return min(width, maxWidth)
		}
	}
	return maxWidth
}

// ForTerminal lays out a line for a terminal. Elsewhere it returns the line as it is, so that a
// program gets the whole line.
func ForTerminal(w io.Writer, line string, hang int) string {
	if IsTerminal(w) {
		return Layout(line, Width(w), hang)
	}
	return line
}

// Layout breaks a message for a terminal. In a line longer than width it puts each clause on a line
// of its own, so that the fix is below the fault. Such further lines are indented, by at least
// hang. It breaks nowhere else: the terminal wraps the rest, and a command or statement can be
// copied whole.
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

// columns counts widths as a terminal does: an escape sequence has no width.
var columns = displaywidth.Options{ControlSequences: true}

// Columns returns the width of a text on a terminal.
func Columns(s string) int { return columns.String(s) }

// Cut shortens a text to a width that includes the tail.
func Cut(s string, width int, tail string) string { return columns.TruncateString(s, width, tail) }

// Wrap breaks a text into lines at spaces. It breaks a word only when the word is longer than a
// line.
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

// hard returns as much of a word as fits into a line, and at least one character.
func hard(word string, width int) string {
	end, used := 0, 0
	for g := columns.StringGraphemes(word); g.Next(); end += len(g.Value()) {
		if used += g.Width(); used > width && end > 0 {
			break
		}
	}
	return word[:end]
}
