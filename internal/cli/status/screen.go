// The screen of status --watch on a terminal.

package status

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"

	"github.com/cdc-relay/cdc-relay/internal/cli/output"
)

// The control sequences of a terminal (ECMA-48, DEC private modes). One that does not know
// synchronized output ignores it.
const (
	// another screen, so that nothing of this stays on the first; no cursor; a line that is too
	// long goes no further
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	beginFrame  = "\x1b[?2026h\x1b[H"
	endLine     = "\x1b[K"
	endFrame    = "\x1b[J\x1b[?2026l"
)

// screen shows the newest snapshot on a terminal. Each frame replaces the one before in one write:
// nothing flickers. It is our own because bubbletea would add 16 modules and 1.4 MB to the binary,
// and take over stdin, for about 60 lines.
type screen struct {
	out     *os.File
	slot    string
	colour  bool
	history history
	current *snapshot
	entered bool
	heard   chan os.Signal
}

func newScreen(out *os.File, slot string, colour bool) *screen {
	s := &screen{out: out, slot: slot, colour: colour, heard: make(chan os.Signal, 4)}
	notifyTerminal(s.heard)
	return s
}

func (s *screen) signals() <-chan os.Signal { return s.heard }

func (s *screen) signal(sig os.Signal) error {
	if err := suspend(sig, s.heard, s.close); err != nil {
		return err
	}
	return s.draw()
}

func (s *screen) show(seen *snapshot) error {
	s.current = seen
	s.history.add(seen)
	return s.draw()
}

func (s *screen) close() {
	if s.entered {
		s.entered = false
		_, _ = s.out.WriteString(leaveScreen) //nolint:errcheck // nobody is left to report it to
	}
}

// draw fills the terminal as it is now: it may have another size each time.
func (s *screen) draw() error {
	if s.current == nil {
		return nil
	}
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	var b bytes.Buffer
	if !s.entered {
		b.WriteString(enterScreen)
		s.entered = true
	}
	b.WriteString(beginFrame)
	for i, line := range fit(s.frame(width), width, height) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + endLine)
	}
	b.WriteString(endFrame)
	_, err = s.out.Write(b.Bytes())
	return err
}

// frame is the text: the state, the sparklines, and the rest of the status.
func (s *screen) frame(width int) string {
	t := statusText{status: s.current.status, colour: s.colour}
	if s.current.status != nil {
		t.head()
	} else {
		state, why := s.current.stateText()
		t.line("state", "%s: %s", t.paint(state, red), output.Clean(why))
	}
	t.sparks(&s.history, width)
	if s.current.status != nil {
		t.rest()
	} else if v := s.current.database; v != nil {
		_ = v.write(&t.out, s.slot) //nolint:errcheck // a buffer takes everything
		t.line("", "asked %s ago", output.Age(s.current.at.Sub(v.Now)))
	}
	return t.out.String()
}

// fit breaks lines that are wider than the terminal at spaces, further lines below the text of the
// first, and cuts what does not fit its height.
func fit(text string, width, height int) []string {
	var out []string
	for line := range strings.Lines(text) {
		out = append(out, wrap(strings.TrimRight(line, "\n"), width)...)
	}
	if len(out) > height {
		out = append(out[:height-1:height-1], fmt.Sprintf("... %d more lines", len(out)-height+1))
	}
	return out
}

// wrap breaks one line at spaces. Further lines are indented below the text of the first.
func wrap(line string, width int) []string {
	const indent = 11 // of the labels
	if width <= indent+8 || ansi.StringWidth(line) <= width {
		return []string{line} // on a narrow terminal it is clipped
	}
	label, text := line[:indent], line[indent:]
	out := strings.Split(ansi.Wrap(text, width-indent, ""), "\n")
	for i := range out {
		out[i] = label + out[i]
		label = strings.Repeat(" ", indent)
	}
	return out
}

// line is a snapshot in one line of plain text.
func (s *snapshot) line(past *history) string {
	state, why := s.stateText()
	if why != "" {
		state += ": " + output.Clean(why)
	}
	switch st := s.status; {
	case st != nil:
		state += fmt.Sprintf(" | %s | lag %s, %s | in flight %s | published %s, %s | deferred %s | dead %s", st.Role,
			showLag(st.Slot.LagSeconds), showBehind(st), output.Thousands(uint64(st.InFlight.Events)), output.Thousands(st.Totals.Published),
			showRate(max(past.rate.last(), 0)), output.Thousands(uint64(st.Deferred.Events)), output.Thousands(uint64(st.DeadLetters.Open)))
	case s.database != nil && s.database.SlotExists:
		state += " | slot " + output.Bytes(s.database.LagBytes) + " behind, asked " + output.Age(time.Since(s.database.Now)) + " ago"
	}
	return state
}

// sparks adds the history: the lag in time and in WAL, and the rate.
func (t *statusText) sparks(past *history, width int) {
	const label, numbers = 11, 30
	room := min(max(width-label-numbers, 8), samples)
	for _, one := range []struct {
		name string
		of   series
		show func(float64) string
	}{{"lag", past.lag, showSeconds}, {"WAL", past.wal, showSparkBytes}, {"rate", past.rate, showRate}} {
		line, highest := one.of.spark(room)
		now := "not known"
		if v := one.of.last(); v >= 0 {
			now = one.show(v)
		}
		t.line(one.name, "%s %s, at most %s", line, now, one.show(highest))
	}
}
