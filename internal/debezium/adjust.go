// schema.name.adjustment.mode: names that Avro takes.

package debezium

import (
	"fmt"
	"strings"
)

// adjustments say how names are made ones that Avro takes.
type adjustments struct{ schemas adjustment }

type adjustment uint8

const (
	adjustNone adjustment = iota
	adjustAvro
	adjustAvroUnicode
)

var adjustmentModes = []string{"none", "avro", "avro_unicode"}

// fullname is the name of a schema as it is written: of letters, digits, underscores and dots, the first no digit.
func (a adjustment) fullname(name string) string {
	if a == adjustNone {
		return name
	}
	var out strings.Builder
	for i, r := range name {
		switch {
		case r == '_' && a == adjustAvro, r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', i > 0 && (r == '.' || r >= '0' && r <= '9'):
			out.WriteRune(r)
		case a == adjustAvro:
			out.WriteByte('_')
		default:
			fmt.Fprintf(&out, "_u%04x", r)
		}
	}
	return out.String()
}
