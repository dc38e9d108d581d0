// Package output writes for people and programs: tables, numbers, colors and line breaks on a terminal, plain text and JSON
// elsewhere.
package output

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func HasColor(w io.Writer) bool { return IsTerminal(w) && os.Getenv("NO_COLOR") == "" }

func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Clean replaces what a terminal would obey rather than show: ids and a broker's words come from elsewhere.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
