// Values as YAML on one line.

package setting

import (
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// Quote writes text as a YAML scalar on one line that Load reads back as it is.
func Quote(s string) string { return quoteScalar(document.Literal(s)) }

// QuoteSecret does not escape: what a secret shows keeps its references.
func QuoteSecret(s Secret) string { return quoteScalar(s.String()) }

func quoteScalar(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off":
		return strconv.Quote(s)
	}
	if !bare().MatchString(s) {
		return strconv.Quote(s)
	}
	return s
}

// bare matches what every YAML reader takes as a string without quotes, also inside brackets.
var bare = lazy.Regexp(`^[A-Za-z_/]([A-Za-z0-9_./:@=-]*[A-Za-z0-9_./@=-])?$`)

// InlineList writes a list.
func InlineList[T any](items []T, show func(T) string) string {
	shown := make([]string, len(items))
	for i, item := range items {
		shown[i] = show(item)
	}
	return "[" + strings.Join(shown, ", ") + "]"
}

func showNamed(columns []NamedColumn) string {
	shown := make([]string, len(columns))
	for i, c := range columns {
		shown[i] = Quote(c.Name) + ": " + Quote(c.Column)
	}
	return "{" + strings.Join(shown, ", ") + "}"
}

// ShowDuration writes a time span without parts that are zero.
func ShowDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// ShowSize is a number of bytes in the largest unit that divides it.
func ShowSize(n int64) string {
	for _, unit := range units[:3] {
		if n >= unit.bytes && n%unit.bytes == 0 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}

var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}, {"", 1}}

// ParseSize reads whole bytes with or without a unit; MiB is 1024², MB is 1000².
func ParseSize(s string) (int64, bool) {
	for _, unit := range units {
		digits, ok := strings.CutSuffix(s, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/unit.bytes {
			return 0, false
		}
		return n * unit.bytes, true
	}
	return 0, false
}
