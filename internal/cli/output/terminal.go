// Package output writes for people and programs: tables, numbers, colors and line breaks on a
// terminal, plain text and JSON elsewhere.
package output

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// HasColor reports whether w is a terminal that may be written in color: NO_COLOR is not set.
func HasColor(w io.Writer) bool { return IsTerminal(w) && os.Getenv("NO_COLOR") == "" }

// JSON writes v indented.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Clean replaces control characters: a terminal would obey those in ids and in a broker's texts.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
