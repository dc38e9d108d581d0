// Line breaks of messages.

package output

import (
	"io"
	"os"
	"regexp"
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

// ForTerminal is a line as it is printed to w: broken on a terminal alone, so that a program finds
// it whole.
func ForTerminal(w io.Writer, line string, hang int) string {
	if IsTerminal(w) {
		return Layout(line, Width(w), hang)
	}
	return line
}

// Layout breaks the lines of a message that are longer than width: each clause goes on a line of
// its own, so that the fix is below the fault, and a clause that is still too long is broken at
// spaces. Further lines are indented, by hang at least. Joined with single spaces they are the
// message again.
func Layout(message string, width, hang int) string {
	var out []string
	for line := range strings.Lines(strings.TrimRight(message, "\n")) {
		line = strings.TrimRight(line, "\n")
		if utf8.RuneCountInString(line) <= width {
			out = append(out, line)
			continue
		}
		text := strings.TrimLeft(line, " ")
		first := line[:len(line)-len(text)]
		indent, further := first, strings.Repeat(" ", max(len(first)+2, hang))
		for clause := range strings.SplitAfterSeq(text, "; ") {
			out = append(out, breakAtSpaces(indent, further, strings.TrimRight(clause, " "), width)...)
			indent = further
		}
	}
	return strings.Join(out, "\n")
}

// unbreakable is what somebody would copy or search for: a command or a text in quotes, a place in
// a file with its key, a statement in brackets, or one that extends to the end. The match begins
// with the character before it.
var unbreakable = regexp.MustCompile("(?:^|[ (])(?:`[^`]*`|'[^']*'|\"[^\"]*\"|[^ ]+:[0-9]+:[0-9]+: [^ ]+|cdc-relay [a-z].*|" +
	statement + `[^()]*\)|` + statement + ".*)")

// noBreak is a space at which nothing is broken.
const noBreak = "\x00"

// startsSQL matches the start of a statement, which begins a new line.
var startsSQL = regexp.MustCompile("^" + strings.TrimSpace(statement) + noBreak)

const statement = `(?:ALTER|COMMENT|CREATE|DELETE|DROP|GRANT|INSERT|SELECT|UPDATE|WITH) `

// breakAtSpaces breaks one clause, but not within what is copied. The first line begins with
// indent, the others with further.
func breakAtSpaces(indent, further, clause string, width int) (lines []string) {
	clause = unbreakable.ReplaceAllStringFunc(clause, func(s string) string {
		return s[:1] + strings.ReplaceAll(s[1:], " ", noBreak)
	})
	line := indent
	for i, word := range strings.Split(clause, " ") {
		switch {
		case i == 0:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width, startsSQL.MatchString(word):
			lines = append(lines, line)
			line = further + word
		default:
			line += " " + word
		}
	}
	lines = append(lines, line)
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], noBreak, " ")
	}
	return lines
}
