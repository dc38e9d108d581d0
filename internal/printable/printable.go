// Package printable makes texts of others fit for a terminal, which would obey the control
// characters in ids, payloads and brokers' texts: it would show other text, or a link, or type
// commands. Characters that reorder or hide text count as well (bidi overrides, zero width).
package printable

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line replaces everything in a text that is not shown, line breaks too: what is one line of ours
// stays one.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Lines is Line for a text of several lines: line feeds and tabs stay. A carriage return alone
// would let the end of a line hide its beginning.
func Lines(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// Text returns a writer of text of several lines. Each Write has whole characters.
func Text(w io.Writer) io.Writer { return cleaner{w} }

type cleaner struct{ w io.Writer }

// Write implements io.Writer.
func (c cleaner) Write(p []byte) (int, error) {
	if _, err := io.WriteString(c.w, Lines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// JSON returns a writer of JSON, or of log lines, whose strings encoding/json and zap leave partly
// as they are: they escape the control characters of ASCII, not DEL, C1 and bidi overrides. What it
// escapes means the same to a program. Each Write has whole characters.
func JSON(w io.Writer) io.Writer { return escaper{w} }

type escaper struct{ w io.Writer }

// Write implements io.Writer. The usual text, which is ASCII, is passed on as it is.
func (e escaper) Write(p []byte) (int, error) {
	if utf8.Valid(p) && !bytes.ContainsFunc(p, isEscaped) {
		return e.w.Write(p)
	}
	var out bytes.Buffer
	for rest := p; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		if !isEscaped(r) {
			out.WriteRune(r) // of a broken byte, which may be an escape of eight bits, U+FFFD
		} else if r > 0xFFFF {
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		} else {
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		rest = rest[n:]
	}
	if _, err := e.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// isEscaped leaves out the line ends and tabs between the strings.
func isEscaped(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
