package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// The control sequences of a terminal (ECMA-48, DEC private modes). One that does not know synchronized output ignores it.
const (
	// another screen, so that nothing of this stays on the first; no cursor; a line that is too long goes no further
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	beginFrame  = "\x1b[?2026h\x1b[H"
	endLine     = "\x1b[K"
	endFrame    = "\x1b[J\x1b[?2026l"
)

// screen shows the newest sight on a terminal, each frame over the one before in one write: nothing flickers.
type screen struct {
	out    *os.File
	slot   string
	colour bool
	past   history
	last   *sight
	open   bool
	heard  chan os.Signal
}

func newScreen(out *os.File, slot string, colour bool) *screen {
	s := &screen{out: out, slot: slot, colour: colour, heard: make(chan os.Signal, 4)}
	s.listen()
	return s
}

func (s *screen) signals() <-chan os.Signal { return s.heard }

func (s *screen) show(seen *sight) error {
	s.last = seen
	s.past.add(seen)
	return s.draw()
}

func (s *screen) close() {
	if s.open {
		s.open = false
		_, _ = s.out.WriteString(leaveScreen) //nolint:errcheck // nobody is left to tell
	}
}

// draw fills the terminal as it is now: it may have another size each time.
func (s *screen) draw() error {
	if s.last == nil {
		return nil
	}
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	var b bytes.Buffer
	if !s.open {
		b.WriteString(enterScreen)
		s.open = true
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

// frame is the text: the state, the sparklines, and what else there is to say.
func (s *screen) frame(width int) string {
	t := statusText{status: s.last.status, colour: s.colour}
	if s.last.status != nil {
		t.head()
	} else {
		state, why := s.last.words()
		t.line("state", "%s: %s", t.paint(state, red), clean(why))
	}
	t.sparks(&s.past, width)
	if s.last.status != nil {
		t.rest()
	} else if v := s.last.database; v != nil {
		_ = v.write(&t.out, s.slot) //nolint:errcheck // a buffer takes everything
		t.line("", "asked %s ago", showAge(s.last.at.Sub(v.Now)))
	}
	return t.out.String()
}

// sparks are the lines of what has been: how far behind in time and in WAL, and how fast it goes.
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

// fit breaks lines that are wider than the terminal at spaces, further lines below the text of the first, and cuts what does not
// fit its height.
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

// wrap breaks one line. Colours take no room, and no line is broken inside one: a state in colour is short.
func wrap(line string, width int) []string {
	const indent = 11
	var out []string
	rest, first := line, 0
	for visible(rest) > width-first && width > indent+8 {
		cut := lastSpace(rest, width-first, indent-first)
		out = append(out, strings.Repeat(" ", first)+strings.TrimRight(rest[:cut], " "))
		rest, first = strings.TrimLeft(rest[cut:], " "), indent
	}
	return append(out, strings.Repeat(" ", first)+rest)
}

// visible counts the characters that take room.
func visible(line string) (n int) {
	scan(line, func(int) { n++ })
	return n
}

// lastSpace is where to cut so that at most width characters come before: at a space behind the label, else at the width.
func lastSpace(line string, width, label int) int {
	space, limit, n := 0, len(line), 0
	scan(line, func(at int) {
		if line[at] == ' ' && n >= label && n <= width {
			space = at
		}
		if n == width {
			limit = at
		}
		n++
	})
	if space > 0 {
		return space
	}
	return limit
}

// scan calls each with the place of every character that takes room: escape sequences, all of which end with m, take none.
func scan(line string, each func(at int)) {
	escape := false
	for at, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			each(at)
		}
	}
}

// line is a sight in one line of plain text.
func (s *sight) line(past *history) string {
	state, why := s.words()
	if why != "" {
		state += ": " + clean(why)
	}
	switch st := s.status; {
	case st != nil:
		state += fmt.Sprintf(" | %s | lag %s, %s | in flight %s | published %s, %s | parked %s | dead %s", st.Role,
			showLag(st.Slot.LagSeconds), showBehind(st), thousands(uint64(st.InFlight.Events)), thousands(st.Totals.Published),
			showRate(max(past.rate.last(), 0)), thousands(uint64(st.Parked.Events)), thousands(uint64(st.DeadLetters.Open)))
	case s.database != nil && s.database.SlotExists:
		state += " | slot " + showBytes(s.database.LagBytes) + " behind, asked " + showAge(time.Since(s.database.Now)) + " ago"
	}
	return state
}
