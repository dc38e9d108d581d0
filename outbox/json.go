// What JSON allows and PostgreSQL's jsonb refuses.

package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxDepth bounds nested arrays and objects: PostgreSQL reads them recursively, and refuses
	// those that its stack has no room for (max_stack_depth).
	maxDepth = 1000
	// maxNumber bounds the length of a number, and its exponent: jsonb writes all digits out, and
	// takes 131,072 of them before the point and 16,383 behind it.
	maxNumber = 1000
)

// checkJSON returns why a text is not JSON that PostgreSQL stores, or how many bytes the relay
// reads of it at most. A column of type json or text keeps the text. A jsonb comes back with a
// space behind each comma and colon, without other spaces, and with all digits of a number. Its
// strings get no longer, because it escapes no more than JSON demands.
func checkJSON(text string) (size int, err error) {
	switch {
	case text == "":
		return 0, errors.New("it is empty; for an event without a body set Payload to nil")
	case !utf8.ValidString(text):
		return 0, errors.New("it is not UTF-8")
	case !json.Valid([]byte(text)):
		return 0, errors.New("it is not JSON")
	}
	depth := 0
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			n, err := checkString(text[i:])
			if err != nil {
				return 0, err
			}
			i += n
			size += n
		case c == '-' || c >= '0' && c <= '9':
			n := len(text[i:]) - len(strings.TrimLeft(text[i:], "-+.eE0123456789"))
			digits, err := checkNumber(text[i : i+n])
			if err != nil {
				return 0, err
			}
			i += n
			size += digits
		default:
			switch c {
			case '[', '{':
				if depth++; depth > maxDepth {
					return 0, fmt.Errorf("it is nested deeper than %d", maxDepth)
				}
			case ']', '}':
				depth--
			case ',', ':':
				size++
			case ' ', '\t', '\n', '\r':
				size--
			}
			i++
			size++
		}
	}
	return max(size, len(text)), nil
}

// checkString checks the string that text begins with, and returns its length with the quotes.
func checkString(text string) (int, error) {
	for i := 1; ; i++ {
		switch text[i] {
		case '"':
			return i + 1, nil
		case '\\':
			if i++; text[i] != 'u' {
				continue
			}
			unit := hex4(text[i+1:])
			i += 4
			switch {
			case unit == 0:
				return 0, errors.New(`it has \u0000, which PostgreSQL does not store`)
			case unit < 0xd800 || unit > 0xdfff:
				continue
			case unit >= 0xdc00 || !strings.HasPrefix(text[i+1:], `\u`) || hex4(text[i+3:])&0xfc00 != 0xdc00:
				return 0, errors.New(`it has half a surrogate pair (\ud800 to \udfff), which stands for no character`)
			}
			i += 6
		}
	}
}

// hex4 is the number of the four hexadecimal digits that text begins with; of checked JSON it has
// them.
func hex4(text string) uint64 {
	n, err := strconv.ParseUint(text[:4], 16, 16)
	if err != nil {
		return 0 // cannot be: the document was checked
	}
	return n
}

// checkNumber checks a number, and returns how long it is at most without its exponent.
func checkNumber(text string) (int, error) {
	mantissa, exponent := text, 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(text[i+1:]); err != nil {
			exponent = maxNumber + 1 // more digits than an int has
		}
		mantissa = text[:i]
	}
	switch {
	case len(text) > maxNumber || exponent > maxNumber || exponent < -maxNumber:
		return 0, fmt.Errorf("it has a number of %d bytes with exponent %d, the limit of both is %d", len(text), exponent, maxNumber)
	case exponent < 0 && !strings.Contains(mantissa, "."): // 1e-2 is 0.01
		return len(mantissa) - exponent + 1, nil
	case exponent < 0: // 1.5e-2 is 0.015
		return len(mantissa) - exponent, nil
	}
	return len(mantissa) + exponent, nil
}
