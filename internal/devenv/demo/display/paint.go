// Colours of the terminal.

package display

import (
	"os"

	"golang.org/x/term"
)

// Paint colours text by the terminal's own palette; false leaves it as it is.
type Paint bool

// Colourful reports whether the output is a terminal that may be written to in colours
// (https://no-color.org).
func Colourful(f *os.File) bool { return isScreen(f) && os.Getenv("NO_COLOR") == "" }

// isScreen reports whether the output is a terminal on which the cursor can be moved.
func isScreen(f *os.File) bool {
	return term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

// Bold makes the text bold.
func (p Paint) Bold(s string) string { return p.sgr("1", s) }

// Dim makes the text faint.
func (p Paint) Dim(s string) string { return p.sgr("2", s) }

// Red colours the text red.
func (p Paint) Red(s string) string { return p.sgr("31", s) }

// Green colours the text green.
func (p Paint) Green(s string) string  { return p.sgr("32", s) }
func (p Paint) yellow(s string) string { return p.sgr("33", s) }
func (p Paint) cyan(s string) string   { return p.sgr("36", s) }

// sgr is ECMA-48's Select Graphic Rendition.
func (p Paint) sgr(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// state colours the state of an actor: green works, red does not, yellow is on its way.
func (p Paint) state(s string) string {
	switch s {
	case "up", "streaming", "idle", "reads", "ready", "writes":
		return p.Green(s)
	case "down", "broker down", "stopped", "no answer":
		return p.Red(s)
	case "closed":
		return p.Dim(s)
	}
	return p.yellow(s)
}
