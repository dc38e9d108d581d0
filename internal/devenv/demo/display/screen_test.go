package display

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/demo/golden"
)

// terminal is as much of a terminal as the screen uses. A line that is too long is a fault: a real
// one would wrap it.
type terminal struct {
	t             *testing.T
	width, height int
	lines         []string // all that was ever written, also what has scrolled away
	row           int      // of the cursor, which is always at the left
	hidden        bool
}

func (m *terminal) size() (int, int) { return m.width, m.height }

// Write takes the screen's sequences one by one.
func (m *terminal) Write(b []byte) (int, error) {
	for rest := string(b); rest != ""; {
		rest = m.take(rest)
	}
	return len(b), nil
}

func (m *terminal) take(s string) (rest string) {
	for sequence, do := range map[string]func(){
		hideCursor: func() { m.hidden = true }, showCursor: func() { m.hidden = false },
		beginUpdate: func() {}, endUpdate: func() {}, "\r": func() {},
		lineUp:     func() { m.row = max(m.row-1, len(m.lines)-m.height, 0) },
		eraseBelow: func() { m.lines = m.lines[:m.row] },
		clearAll:   func() { m.lines, m.row = nil, 0 },
	} {
		if rest, ok := strings.CutPrefix(s, sequence); ok {
			do()
			return rest
		}
	}
	line, rest, ok := strings.Cut(s, "\n")
	line, erased := strings.CutSuffix(line, eraseRight)
	if !ok || !erased || strings.Contains(line, "\x1b") || len([]rune(line)) > m.width {
		m.t.Fatalf("unexpected %q", s)
	}
	m.lines = append(m.lines[:m.row], append([]string{line}, m.lines[min(m.row+1, len(m.lines)):]...)...)
	m.row++
	return rest
}

func TestScreenDrawsInPlace(t *testing.T) {
	m := &terminal{t: t, width: 80, height: 24}
	s := &screen{out: m, size: m.size}
	want := func(said ...string) {
		t.Helper()
		lines := append(said, frame(outageView(), false)...)
		if !slices.Equal(m.lines, lines) {
			t.Fatalf("the terminal shows\n%s\nwant\n%s", golden.Text(m.lines), golden.Text(lines))
		}
	}
	s.Say(0, "first")
	s.Show(startView())
	s.Show(outageView())
	s.Show(outageView())
	want("  0:00  first")
	s.Say(61*time.Second, "second")
	want("  0:00  first", "  1:01  second")
	m.width, m.height = 100, 20
	s.Show(outageView())
	want("  0:00  first", "  1:01  second")
	s.Close()
	if m.hidden {
		t.Error("the cursor is still hidden")
	}
}

func TestScreenOfAnySize(t *testing.T) {
	for width := range 90 {
		for height := range 30 {
			m := &terminal{t: t, width: max(1, width), height: max(1, height)}
			s := &screen{out: m, size: m.size}
			for range 3 {
				s.Say(0, strings.Repeat("long ", 30))
				s.Show(outageView())
			}
			shown := frame(outageView(), false)
			shown = shown[:min(len(shown), m.height-1)]
			if len(m.lines) != 3+len(shown) {
				t.Fatalf("at %d × %d: %d lines, want 3 and a frame of %d", width, height, len(m.lines), len(shown))
			}
		}
	}
}

func TestClipKeepsColours(t *testing.T) {
	p := Paint(true)
	if got, want := clip(p.Red("abc")+p.Green("déf"), 4), "\x1b[31mabc\x1b[0m\x1b[32md\x1b[0m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
