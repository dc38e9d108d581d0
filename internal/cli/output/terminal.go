// Package output writes for people and programs: tables, numbers, colors and line breaks on a
// terminal, plain text and JSON elsewhere.
package output

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/cdc-relay/cdc-relay/internal/printable"
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
	enc := json.NewEncoder(printable.JSON(w))
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// JSONLine writes v in one line.
func JSONLine(w io.Writer, v any) error { return json.NewEncoder(printable.JSON(w)).Encode(v) }

// Clean makes a text of others fit for a line of ours.
func Clean(s string) string { return printable.Line(s) }

// CleanLines is Clean for a text that may have several lines.
func CleanLines(s string) string { return printable.Lines(s) }
