// The text of refusals, as rows keep it.

package store

import (
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// NormalText is the text of a rejection as the tables keep it: without numbers, so that equal
// faults have equal texts.
func NormalText(words string) string {
	return BoundedText(dlq.WithoutNumbers(BoundedText(words, 4*TextSize)), TextSize)
}

// BoundedText is s as a text column can hold it: valid, without NUL, and at most size bytes.
func BoundedText(s string, size int) string {
	if len(s) > size {
		for size > 0 && !utf8.RuneStart(s[size]) {
			size--
		}
		s = s[:size]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
}

// TextSize is how many bytes are kept of the text of a rejection, and of a destination's name.
const TextSize = 500
