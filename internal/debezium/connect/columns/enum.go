// Enums: io.debezium.data.Enum, a string whose schema lists the labels.

package columns

import (
	"errors"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

func enumKind(labels []string) columnKind {
	schema := logical(connect.String, "io.debezium.data.Enum")
	schema.Parameters = []connect.Parameter{{Name: "allowed", Value: strings.Join(labels, ",")}}
	return columnKind{schema: schema, read: readText, literal: enumLiteral, parse: readText}
}

var errNoLiteral = errors.New("the default is no label")

// enumLiteral is the label in a default such as 'new'::state. Debezium takes what stands between
// the first and the last quote as it is, and no other expression.
func enumLiteral(expression string) (string, error) {
	cast := strings.LastIndex(expression, "::")
	if cast < 0 {
		return "", errNoLiteral
	}
	label := expression[:cast]
	if !strings.HasPrefix(label, "'") || !strings.HasSuffix(label, "'") || len(label) < 2 {
		return "", errNoLiteral
	}
	return label[1 : len(label)-1], nil
}
