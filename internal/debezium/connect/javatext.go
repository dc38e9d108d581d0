// Numbers and strings as Java and Jackson write them.

package connect

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Unscaled is the value's unscaled integer as decimal digits with a sign.
func Unscaled(dst []byte, v Value) []byte {
	n := new(big.Int).SetBytes(v.Data)
	if v.Data[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(v.Data))))
	}
	return n.Append(dst, 10)
}

// AppendDecimal appends the value as BigDecimal.toString does: plain, or with an exponent when the
// scale is negative or more than six zeros would follow the point (0.00000001 is 1E-8).
func AppendDecimal(dst []byte, v Value) []byte {
	var scratch [64]byte
	digits := Unscaled(scratch[:0], v)
	if digits[0] == '-' {
		dst = append(dst, '-')
		digits = digits[1:]
	}
	if v.Scale == 0 {
		return append(dst, digits...)
	}
	exponent := len(digits) - 1 - int(v.Scale)
	if v.Scale > 0 && exponent >= -6 {
		return AppendPoint(dst, digits, int(v.Scale))
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(dst, '.')
		dst = append(dst, digits[1:]...)
	}
	if exponent != 0 {
		dst = append(dst, 'E')
		if exponent > 0 {
			dst = append(dst, '+')
		}
		dst = strconv.AppendInt(dst, int64(exponent), 10)
	}
	return dst
}

// AppendPoint appends digits with a point before the last scale of them.
func AppendPoint(dst, digits []byte, scale int) []byte {
	if whole := len(digits) - scale; whole > 0 {
		dst = append(dst, digits[:whole]...)
		digits = digits[whole:]
	} else {
		dst = append(dst, '0')
	}
	dst = append(dst, '.')
	for range scale - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// AppendFloat appends f as Double.toString does, of 32 bits as Float.toString, in Java 19 and newer
// (Debezium 3.6 wants 21): the shortest decimal that reads back as f, but of at least two digits,
// and of those the one nearest to f. Plain from 10^-3 to below 10^7, else with an exponent.
func AppendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	if math.Signbit(f) {
		dst = append(dst, '-')
		f = -f
	}
	if f == 0 {
		return append(dst, "0.0"...)
	}
	var scratch [32]byte
	digits, exponent := shortest(scratch[:0], f, bits)
	if exponent < -3 || exponent >= 7 {
		dst = append(dst, digits[0], '.')
		dst = appendRest(dst, digits[1:])
		dst = append(dst, 'E')
		return strconv.AppendInt(dst, int64(exponent), 10)
	}
	if exponent < 0 {
		dst = append(dst, "0."...)
		for range -exponent - 1 {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	if len(digits) <= exponent+1 {
		dst = append(dst, digits...)
		for range exponent + 1 - len(digits) {
			dst = append(dst, '0')
		}
		return append(dst, ".0"...)
	}
	dst = append(dst, digits[:exponent+1]...)
	dst = append(dst, '.')
	return append(dst, digits[exponent+1:]...)
}

// shortest gives the digits of f, without zeros at the end, and the exponent of the first. Go's
// shortest form is Java's, but for two things: Java looks among the decimals of two digits even
// where one digit would do (4.9E-324, not 5.0E-324), and of two that are equally near it takes the
// even one (2^-12 as a float is 2.4414062E-4).
func shortest(scratch []byte, f float64, bits int) (digits []byte, exponent int) {
	digits, exponent = cutExponent(strconv.AppendFloat(scratch, f, 'e', -1, bits))
	var other [32]byte
	nearest := strconv.AppendFloat(other[:0], f, 'e', max(len(digits), 2)-1, bits)
	if same, err := strconv.ParseFloat(string(nearest), bits); err != nil || same != f {
		return digits, exponent
	}
	digits, exponent = cutExponent(append(scratch[:0], nearest...))
	for len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	return digits, exponent
}

func appendRest(dst, digits []byte) []byte {
	if len(digits) == 0 {
		return append(dst, '0')
	}
	return append(dst, digits...)
}

// cutExponent reads a text such as "1.25e-07": the digits without the point, in place, and the
// exponent.
func cutExponent(text []byte) (digits []byte, exponent int) {
	end := len(text) - 1
	for text[end] != 'e' {
		end--
	}
	for _, c := range text[end+2:] {
		exponent = 10*exponent + int(c-'0')
	}
	if text[end+1] == '-' {
		exponent = -exponent
	}
	if end == 1 {
		return text[:1], exponent
	}
	text[1] = text[0] // over the point
	return text[1:end], exponent
}

const upperHex = "0123456789ABCDEF"

// AppendQuoted appends s as a JSON string. Jackson escapes the quote, the backslash and what lies
// below the space (the short forms where there is one, else \u00XX in upper case), and leaves
// everything else of the BMP as it is: no escape for "/", "<", "&", DEL or U+2028. A character
// beyond the BMP becomes the escapes of its two surrogates, as seen on 3.6.1.
//
// Bytes that are not UTF-8 become U+FFFD, as Java reads them.
func AppendQuoted[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, c)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		switch {
		case r > 0xFFFF:
			dst = append(dst, s[start:i]...)
			r -= 0x10000
			dst = appendUnicode(appendUnicode(dst, 0xD800+uint16(r>>10)), 0xDC00+uint16(r&0x3FF))
			i += size
			start = i
		case r == utf8.RuneError && size <= 1:
			dst = utf8.AppendRune(append(dst, s[start:i]...), utf8.RuneError)
			i++
			start = i
		default:
			i += size
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// QuotedMost is how many bytes AppendQuoted makes of one at most, but for the quotes.
const QuotedMost = 6

// QuotedSize is how many bytes AppendQuoted makes of s.
func QuotedSize[T string | []byte](s T) int {
	size := 2
	for _, r := range string(s) {
		switch {
		case r == '"' || r == '\\' || r == '\b' || r == '\t' || r == '\n' || r == '\f' || r == '\r':
			size += 2
		case r < ' ':
			size += 6
		case r > 0xFFFF:
			size += 12
		default:
			size += utf8.RuneLen(r)
		}
	}
	return size
}

func appendEscape(dst []byte, c byte) []byte {
	const short, names = "\"\\\b\t\n\f\r", `"\btnfr`
	if i := strings.IndexByte(short, c); i >= 0 {
		return append(dst, '\\', names[i])
	}
	return appendUnicode(dst, uint16(c))
}

func appendUnicode(dst []byte, unit uint16) []byte {
	return append(dst, '\\', 'u', upperHex[unit>>12], upperHex[unit>>8&0xF], upperHex[unit>>4&0xF], upperHex[unit&0xF])
}
