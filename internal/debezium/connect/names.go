// Names of schemas and fields, adjusted for Avro where the configuration says so.

package connect

import (
	"strconv"
	"unicode"
	"unicode/utf16"
)

// NameMode is schema.name.adjustment.mode or field.name.adjustment.mode.
type NameMode uint8

// The values of the two options.
const (
	NamesAsTheyAre NameMode = iota
	NamesAvro
	NamesAvroUnicode
)

// NameModes are the names of the values, at their places.
var NameModes = []string{"none", "avro", "avro_unicode"}

// Schema is the schema's name under the mode (SchemaNameAdjuster.validFullname).
func (m NameMode) Schema(name string) string { return m.adjust(name, true) }

// Field is the field's name under the mode: as a schema's, but that a dot is no part of it.
func (m NameMode) Field(name string) string { return m.adjust(name, false) }

// AdjustedMost is how many bytes the modes make of one, at most.
const AdjustedMost = 6

// adjust goes by UTF-16 units, as Java does: a character beyond the BMP is replaced twice.
func (m NameMode) adjust(name string, dot bool) string {
	if m == NamesAsTheyAre || name == "" {
		return name
	}
	var out []byte
	for i, unit := range utf16.Encode([]rune(name)) {
		alphabetic := unit >= 'a' && unit <= 'z' || unit >= 'A' && unit <= 'Z' || unit == '_' && m == NamesAvro
		digit := unit >= '0' && unit <= '9'
		switch {
		case alphabetic || i > 0 && (digit || dot && unit == '.'):
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
