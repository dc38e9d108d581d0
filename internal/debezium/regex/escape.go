// Escapes in Java's regular expressions: classes, characters by their numbers, properties.

package regex

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// escape takes a backslash outside a class.
func (t *translation) escape() error {
	if len(t.rest) < 2 {
		return errors.New("ends in a backslash")
	}
	switch c := t.rest[1]; c {
	case 'd', 'D', 'w', 'W', 'b', 'B', 'A', 'z':
		if strings.HasPrefix(t.rest, `\b{`) {
			return lacking(`a grapheme boundary \b{g}`)
		}
		t.out.WriteString(t.take(2))
		return nil
	case 's', 'h', 'v':
		t.take(2)
		t.out.WriteString("[" + map[byte]string{'s': spaces, 'h': horizontals, 'v': verticals}[c] + "]")
		return nil
	case 'S', 'H', 'V':
		t.take(2)
		t.out.WriteString("[^" + map[byte]string{'S': spaces, 'H': horizontals, 'V': verticals}[c] + "]")
		return nil
	case 'Q':
		t.take(2)
		quoted, rest, _ := strings.Cut(t.rest, `\E`)
		t.rest = rest
		t.out.WriteString(regexp.QuoteMeta(quoted))
		t.atom = quoted != ""
		return nil
	}
	text, err := t.character()
	if err != nil {
		return err
	}
	t.out.WriteString(text)
	return nil
}

// character takes an escape that means the same outside and inside a class: one character, or a
// property.
func (t *translation) character() (string, error) {
	c := t.rest[1]
	switch {
	case c >= '1' && c <= '9' || c == 'k':
		return "", lacking(`a backreference \` + string(c))
	case strings.IndexByte("aftnr", c) >= 0:
		return t.take(2), nil
	case c == 'e':
		t.take(2)
		return `\x1b`, nil
	case c == '0':
		return t.number(octal, 8)
	case c == 'u':
		return t.number(fourHex, 16)
	case c == 'x':
		if bracedHex.MatchString(t.rest) {
			return t.number(bracedHex, 16)
		}
		return t.number(twoHex, 16)
	case c == 'p' || c == 'P':
		return t.property()
	case c == 'Z':
		return "", lacking(`\Z`)
	case c == 'G':
		return "", lacking(`\G`)
	case c == 'R':
		return "", lacking(`a line break \R`)
	case c == 'X':
		return "", lacking(`a grapheme cluster \X`)
	case c == 'N':
		return "", lacking(`a character by its name \N{...}`)
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		return "", fmt.Errorf(`has \%c, which is refused here`, c)
	}
	t.take(1)
	_, size := utf8.DecodeRuneInString(t.rest)
	return quoteInClass(t.take(size)), nil
}

var (
	octal     = regexp.MustCompile(`^\\0([0-3]?[0-7]{1,2})`)
	twoHex    = regexp.MustCompile(`^\\x([0-9a-fA-F]{2})`)
	fourHex   = regexp.MustCompile(`^\\u([0-9a-fA-F]{4})`)
	bracedHex = regexp.MustCompile(`^\\x\{([0-9a-fA-F]{1,6})\}`)
)

// number takes a character that is written as its number.
func (t *translation) number(form *regexp.Regexp, base int) (string, error) {
	found := form.FindStringSubmatch(t.rest)
	if found == nil {
		return "", fmt.Errorf(`has \%c without the digits that belong to it`, t.rest[1])
	}
	n, err := strconv.ParseUint(found[1], base, 32)
	if err != nil || !utf8.ValidRune(rune(n)) {
		return "", fmt.Errorf("has %s, which is no character by itself", found[0])
	}
	t.take(len(found[0]))
	return fmt.Sprintf(`\x{%x}`, n), nil
}

var (
	propertyForm = regexp.MustCompile(`^\\[pP](\{(\w+)\}|([A-Z]))`)
	// posix are the properties of US-ASCII that Java knows by other names.
	posix = map[string]string{
		"Lower": "a-z", "Upper": "A-Z", "ASCII": `\x00-\x7F`, "Alpha": "A-Za-z", "Digit": "0-9", "Alnum": "0-9A-Za-z",
		"Punct": `!-/:-@\[-\x60{-~`, "Graph": "!-~", "Print": " -~", "Blank": ` \t`, "Cntrl": `\x00-\x1F\x7F`, "XDigit": "0-9A-Fa-f", "Space": spaces,
	}
	category = regexp.MustCompile(`^(C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?)$`)
)

// property takes \p{...}: a POSIX name, or a general category.
func (t *translation) property() (string, error) {
	found := propertyForm.FindStringSubmatch(t.rest)
	if found == nil {
		return "", errors.New(`has \p with a property that is not taken here: want one such as \p{Lu} or \p{Alpha}`)
	}
	name, negated := found[2]+found[3], t.rest[1] == 'P'
	if set, ok := posix[name]; ok && !negated {
		t.take(len(found[0]))
		return "[" + set + "]", nil
	} else if ok {
		t.take(len(found[0]))
		return "[^" + set + "]", nil
	}
	if name = strings.TrimPrefix(name, "Is"); !category.MatchString(name) {
		return "", fmt.Errorf("has the property %s, which is not taken here: want one such as \\p{Lu} or \\p{Alpha}", found[0])
	}
	t.take(len(found[0]))
	if negated {
		return `\P{` + name + `}`, nil
	}
	return `\p{` + name + `}`, nil
}

// quoteInClass writes a character so that it stands for itself outside and inside a class.
func quoteInClass(c string) string {
	if len(c) == 1 && (c[0] < utf8.RuneSelf && strings.IndexByte(`\.+*?()|[]{}^$-&~#`, c[0]) >= 0) {
		return `\` + c
	}
	return c
}
