// Names of schemas, adjusted for Avro where the configuration says so.

package connect

import (
	"strconv"
	"unicode"
	"unicode/utf16"
)

// NameMode is schema.name.adjustment.mode.
type NameMode uint8

// The values of schema.name.adjustment.mode.
const (
	NamesAsTheyAre NameMode = iota
	NamesAvro
	NamesAvroUnicode
)

// NameModes are the names of the values, at their places.
var NameModes = []string{"none", "avro", "avro_unicode"}

// Schema is the schema's name under the mode (SchemaNameAdjuster.validFullname). It goes by UTF-16 units, as Java does: a
// character beyond the BMP is replaced twice.
func (m NameMode) Schema(name string) string {
	if m == NamesAsTheyAre || name == "" {
		return name
	}
	var out []byte
	for i, unit := range utf16.Encode([]rune(name)) {
		letter := unit >= 'a' && unit <= 'z' || unit >= 'A' && unit <= 'Z' || unit == '_' && m == NamesAvro
		digit := unit >= '0' && unit <= '9'
		switch {
		case letter || i > 0 && (digit || unit == '.'):
			out = append(out, byte(unit))
		case m == NamesAvro:
			out = append(out, '_')
			if i == 0 && unicode.IsDigit(rune(unit)) {
				out = append(out, string(rune(unit))...)
			}
		default:
			out = append(out, "_u"...)
			if unit <= 0xFF {
				out = append(out, "00"...)
			}
			out = strconv.AppendUint(out, uint64(unit), 16)
		}
	}
	return string(out)
}
