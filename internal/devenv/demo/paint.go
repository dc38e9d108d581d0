package main

import (
	"os"

	"golang.org/x/term"
)

// paint colours text by the terminal's own palette; false leaves it as it is.
type paint bool

// colourful reports whether the output is a terminal that may be written to in colours (https://no-color.org).
func colourful(f *os.File) bool { return isScreen(f) && os.Getenv("NO_COLOR") == "" }

// isScreen reports whether the output is a terminal on which the cursor can be moved.
func isScreen(f *os.File) bool {
	return term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

func (p paint) bold(s string) string   { return p.sgr("1", s) }
func (p paint) dim(s string) string    { return p.sgr("2", s) }
func (p paint) red(s string) string    { return p.sgr("31", s) }
func (p paint) green(s string) string  { return p.sgr("32", s) }
func (p paint) yellow(s string) string { return p.sgr("33", s) }
func (p paint) cyan(s string) string   { return p.sgr("36", s) }

// sgr is ECMA-48's Select Graphic Rendition.
func (p paint) sgr(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// state colours the state of an actor: green works, red does not, yellow is on its way.
func (p paint) state(s string) string {
	switch s {
	case "up", "streaming", "idle", "reads", "ready", "writes":
		return p.green(s)
	case "down", "broker down", "stopped", "no answer":
		return p.red(s)
	case "closed":
		return p.dim(s)
	}
	return p.yellow(s)
}
