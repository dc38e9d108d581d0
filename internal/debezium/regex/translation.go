// The state of a translation, and what its steps share.

package regex

import (
	"fmt"
	"strings"
)

// translation walks a pattern from left to right.
type translation struct {
	rest   string
	out    strings.Builder
	names  []string // of the groups so far
	dotall []bool   // (?s) in the open groups, the innermost last
	atom   bool     // what was written last can be repeated
}

const (
	// lineEnds are what Java's dot does not match; RE2's leaves out the first only.
	lineEnds = `\n\r\x{85}\x{2028}\x{2029}`
	// spaces are Java's \s; RE2's lacks the vertical tab.
	spaces      = ` \t\n\x0B\f\r`
	verticals   = `\n\x0B\f\r\x{85}\x{2028}\x{2029}`
	horizontals = ` \t\x{A0}\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}`
)

func lacking(what string) error {
	return fmt.Errorf("has %s, which RE2 does not have", what)
}

// take takes the next n bytes.
func (t *translation) take(n int) string {
	taken := t.rest[:n]
	t.rest = t.rest[n:]
	return taken
}
