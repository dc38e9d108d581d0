// The screen: frames drawn in place on a terminal.

package display

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Display is what the audience sees: a screen that is redrawn in place, or plain lines. Its methods
// may be called from several goroutines.
type Display interface {
	Say(at time.Duration, text string) // a line that stays
	Show(v *View)                      // what is the case now
	Close()                            // the last view stays; what is written now comes below it
}

// NewDisplay shows the demo on f: a screen when f is a terminal that can be one, else plain lines.
// The caller closes it.
func NewDisplay(f *os.File) Display {
	if !isScreen(f) {
		return &Plain{Out: f}
	}
	s := &screen{out: f, colours: Paint(Colourful(f)), size: func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}}
	s.out.Write([]byte(hideCursor)) //nolint:errcheck // nobody is left to tell
	return s
}

// The control sequences of a terminal (ECMA-48, DEC private modes). A terminal that does not know
// synchronized output ignores it.
const (
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
	beginUpdate = "\x1b[?2026h"
	endUpdate   = "\x1b[?2026l"
	lineUp      = "\x1b[A"
	eraseRight  = "\x1b[K"
	eraseBelow  = "\x1b[J"
	clearAll    = "\x1b[H\x1b[2J"
)

// screen is a terminal: said lines, and below them a frame that is drawn over itself. Every change
// is one write.
type screen struct {
	out     io.Writer
	colours Paint
	size    func() (width, height int)

	mu     sync.Mutex
	said   []string
	frame  []string // as it stands there
	width  int      // at the last write
	height int
}

func (s *screen) Say(at time.Duration, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := "  " + s.colours.Dim(clock(at)) + "  " + text
	s.said = append(s.said, line)
	s.draw(s.frame, line)
}

func (s *screen) Show(v *View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draw(frame(v, s.colours))
}

func (s *screen) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Write([]byte(showCursor)) //nolint:errcheck // nobody is left to tell
}

// draw writes the new lines above the frame, and the frame; s.mu is locked. Behind a line only what
// is left of it is erased, so nothing flickers where nothing changes. The frame never fills the
// screen: the cursor stands below it, and can go up only as far as lines are visible.
func (s *screen) draw(frame []string, above ...string) {
	var b strings.Builder
	b.WriteString(beginUpdate)
	width, height := s.size()
	if s.width != 0 && (width != s.width || height != s.height) {
		// The terminal has wrapped its lines again: nobody knows where the frame is.
		b.WriteString(clearAll)
		above = s.said[max(0, len(s.said)-max(0, height-len(frame)-1)):]
	} else {
		b.WriteString(strings.Repeat(lineUp, len(s.frame)) + "\r")
	}
	s.width, s.height = width, height
	s.frame = frame[:min(len(frame), max(0, height-1))]
	for _, line := range append(above[:len(above):len(above)], s.frame...) {
		b.WriteString(clip(line, width-1) + eraseRight + "\n")
	}
	b.WriteString(eraseBelow + endUpdate)
	io.WriteString(s.out, b.String()) //nolint:errcheck // nobody is left to tell
}

// clip cuts a line behind the given number of visible characters; colours take no room, and are
// switched off by their own ends, which are kept.
func clip(line string, width int) string {
	var b strings.Builder
	visible, escape := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		case visible >= width:
			continue
		default:
			visible++
		}
		b.WriteRune(r)
	}
	return b.String()
}
