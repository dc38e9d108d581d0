// JSON strings as Jackson's UTF-8 generator writes them with its default features.

package javatext

import "unicode/utf8"

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
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	default:
		return appendUnicode(dst, uint16(c))
	}
}

func appendUnicode(dst []byte, unit uint16) []byte {
	return append(dst, '\\', 'u', upperHex[unit>>12], upperHex[unit>>8&0xF], upperHex[unit>>4&0xF], upperHex[unit&0xF])
}
