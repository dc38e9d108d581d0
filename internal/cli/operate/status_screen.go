// The screen of status --watch on a terminal.

package operate

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
)

// The control sequences of a terminal (ECMA-48, DEC private modes). A terminal that does not know
// synchronized output ignores it.
const (
	clearScreen = "\x1b[2J"
	beginFrame  = "\x1b[?2026h\x1b[H"
	endLine     = "\x1b[K\r\n"
	endFrame    = "\x1b[J\x1b[?2026l"
)

// screen shows the newest snapshot on a terminal. Each frame replaces the former one in a single
// write, so that nothing flickers. It changes no mode of the terminal and leaves the cursor below
// the text, so nothing has to be restored when the process ends or is suspended. It is our own
// because bubbletea would add 16 modules and 1.4 MB to the binary, and take over stdin.
type screen struct {
	out     *os.File
	slot    string
	colour  bool
	cleared bool // the terminal was cleared before the first frame
}

// draw fills the terminal with a frame. It asks for the size each time, because that may change.
func (s *screen) draw(seen *snapshot) error {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	var b bytes.Buffer
	b.WriteString(beginFrame)
	if !s.cleared {
		b.WriteString(clearScreen)
		s.cleared = true
	}
	for _, line := range fit(s.frame(seen), width, height-1) {
		b.WriteString(line + endLine)
	}
	b.WriteString(endFrame)
	_, err = s.out.Write(b.Bytes())
	return err
}

// frame returns the text: the status or, while the relay does not answer, what the database knows.
func (s *screen) frame(seen *snapshot) string {
	t := statusText{status: seen.status, colour: s.colour}
	if seen.status != nil {
		t.all()
		return t.out.String()
	}
	state, why := seen.stateText()
	t.line("state", "%s: %s", t.paint(state, red), why)
	if v := seen.database; v != nil {
		_ = v.write(&t.out, s.slot) //nolint:errcheck // a buffer takes everything
		if old := seen.databaseAsOf(); old != "" {
			t.line("", "%s", strings.TrimPrefix(old, ", "))
		}
	}
	return t.out.String()
}

// fit makes a text fit the terminal: it breaks wide lines at spaces, and replaces lines below its
// height by their number.
func fit(text string, width, height int) []string {
	var out []string
	for line := range strings.Lines(text) {
		out = append(out, wrap(strings.TrimRight(line, "\n"), width)...)
	}
	if len(out) > height {
		height = max(height, 1)
		out = append(out[:height-1:height-1], command.Cut(fmt.Sprintf("... %d more lines", len(out)-height+1), width, ""))
	}
	return out
}

// wrap breaks one line at spaces. Further lines are indented below the text of the first.
func wrap(line string, width int) []string {
	const indent = 11 // the width of the labels
	if width <= indent+8 || command.Columns(line) <= width {
		return []string{command.Cut(line, width, "")}
	}
	label, text := line[:indent], line[indent:]
	out := command.Wrap(text, width-indent)
	for i := range out {
		out[i] = label + out[i]
		label = strings.Repeat(" ", indent)
	}
	return out
}
