// Defaults: what Debezium makes of a column's default expression. It evaluates nothing.

package columns

import (
	"errors"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// The patterns by which PostgresDefaultValueConverter tells a function's call from a literal, and
// takes out the literal.
var (
	functionCall = lazy.Regexp(`^[(]?[A-Za-z0-9_.]+\((?:.+(?:, ?.+)*)?\)`)
	quoted       = lazy.Regexp(`'(.*?)'`)
)

var currentTimes = map[string]bool{
	"current_timestamp": true, "current_time": true, "current_date": true, "localtime": true, "localtimestamp": true,
}

// defaultValue is the default in the column's schema, nil for none: a function's call is the type's
// filler ("" for a text, 0 for a sequence, zeros for a generated UUID), a literal is what stands
// between its first two quotes, and what cannot be read as the type is none.
func defaultValue(kind columnKind, expression string) (*connect.Value, error) {
	text, ok := literal(kind, expression)
	if kind.literal != nil {
		var err error
		text, err = kind.literal(expression)
		ok = err == nil
	}
	if !ok {
		return nil, nil
	}
	if strings.HasSuffix(text, "infinity") && kind.filler == epoch {
		// pgjdbc reads it otherwise than a row's, and into numbers that mean nothing.
		return nil, errors.New("a default of infinity is not supported here")
	}
	v, _, err := kind.parse(nil, []byte(text))
	if err != nil {
		return nil, nil //nolint:nilerr // Debezium warns, and has no default
	}
	return &v, nil
}

// literal is the text of an expression; false for a NULL, and for a quote that has no other.
func literal(kind columnKind, expression string) (text string, ok bool) {
	expression = strings.TrimSpace(expression)
	if functionCall().MatchString(expression) || currentTimes[strings.ToLower(expression)] {
		return kind.filler, true
	}
	if !strings.Contains(expression, "'") {
		return expression, !strings.HasPrefix(expression, "NULL::")
	}
	if found := quoted().FindStringSubmatch(expression); found != nil {
		return found[1], true
	}
	return "", false
}
