// The text of refusals, as rows keep it.

package store

import (
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// NormalText makes few texts of many: the words of a refusal as the tables keep them.
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

// TextSize is the most that is kept of the words of a refusal, and of a destination's name.
const TextSize = 500
