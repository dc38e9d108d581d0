// Defaults: what Debezium makes of a column's default expression. It evaluates nothing.

package connect

import (
	"regexp"
	"strings"
)

// The patterns by which PostgresDefaultValueConverter tells a function's call from a literal, and takes out the literal.
var (
	functionCall = regexp.MustCompile(`^[(]?[A-Za-z0-9_.]+\((?:.+(?:, ?.+)*)?\)`)
	quoted       = regexp.MustCompile(`'(.*?)'`)
)

var currentTimes = map[string]bool{
	"current_timestamp": true, "current_time": true, "current_date": true, "localtime": true, "localtimestamp": true,
}

// defaultValue is the default in the column's schema, nil for none: a function's call is the type's filler ("" for a text,
// 0 for a sequence, zeros for a generated UUID), a literal is what stands between its first two quotes, and what cannot be read
// as the type is none.
func defaultValue(kind columnKind, optional bool, expression string) *Value {
	text, isNull := literal(kind, expression)
	if isNull {
		if optional || !textual(kind) {
			return nil
		}
		// Debezium converts the null as it would a row's: in a column that allows none, to the type's fallback.
		text = ""
	}
	v, _, err := kind.parse(nil, []byte(text))
	if err != nil {
		return nil
	}
	return &v
}

// textual reports whether a default that is NULL goes through the conversion: that of the other types ends before.
func textual(kind columnKind) bool {
	return kind.schema.Type == String && (kind.schema.Name == "" || kind.filler == "{}" || kind.schema.Name == "io.debezium.data.Xml") &&
		kind.filler != "0.0"
}

func literal(kind columnKind, expression string) (text string, isNull bool) {
	if !textual(kind) {
		expression = strings.TrimSpace(expression)
	}
	if functionCall.MatchString(expression) || currentTimes[strings.ToLower(expression)] {
		return kind.filler, false
	}
	if !strings.Contains(expression, "'") {
		return expression, strings.HasPrefix(expression, "NULL::")
	}
	if found := quoted.FindStringSubmatch(expression); found != nil {
		return found[1], false
	}
	return "", true
}
