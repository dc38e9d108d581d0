package retry

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// normalise makes few texts of many: the words of a refusal as cdc_relay.error_text keeps them.
func normalise(words string) string {
	return bounded(dlq.WithoutNumbers(bounded(words, 4*ErrorSize)), ErrorSize)
}

// bounded is s as a text column can hold it: valid, without NUL, and at most size bytes.
func bounded(s string, size int) string {
	if len(s) > size {
		for size > 0 && !utf8.RuneStart(s[size]) {
			size--
		}
		s = s[:size]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
}

// ascii is s for a database whose encoding may lack some of its characters.
func ascii(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), `\\`, `\`)
}

// texts gathers rows for cdc_relay.error_text. They are inserted in the order of ids: two statements that came with the
// same texts in different orders would wait for each other.
type texts map[int64]string

// add normalises words and says by which id a row refers to them; nil when there are none.
func (t texts) add(words string, storable func(string) string) *int64 {
	if words == "" {
		return nil
	}
	text := storable(normalise(words))
	id := outbox.Digest([]byte(text))
	t[*id] = text
	return id
}
