// What Java's Matcher.replaceFirst takes as a replacement, and the topic that it makes.

package regex

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// Replacement is text with references to groups.
type Replacement []Part

// Part is a literal, or what a group has matched when group >= 0.
type Part struct {
	Literal string
	Group   int
}

// NewReplacement reads a replacement: $n, ${name}, and a backslash before what stands for itself.
// Java finds its faults when it replaces, at each event; here they are found at the start.
func NewReplacement(text string, re *regexp.Regexp) (Replacement, error) {
	var out Replacement
	var literal []byte
	flush := func() {
		if len(literal) > 0 {
			out = append(out, Part{string(literal), -1})
			literal = nil
		}
	}
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case '\\':
			if i+1 == len(text) {
				return nil, errors.New("ends in a backslash, which escapes nothing")
			}
			literal = append(literal, text[i+1])
			i += 2
		case '$':
			group, size, err := reference(text[i+1:], re)
			if err != nil {
				return nil, err
			}
			flush()
			out = append(out, Part{"", group})
			i += 1 + size
		default:
			literal = append(literal, c)
			i++
		}
	}
	flush()
	return out, nil
}

// reference reads what follows a dollar sign.
func reference(rest string, re *regexp.Regexp) (group, size int, err error) {
	if rest == "" {
		return 0, 0, errors.New(`ends in a $ (a dollar sign that stands for itself is written \$)`)
	}
	if rest[0] == '{' {
		return namedReference(rest, re)
	}
	if !isDigit(rest[0]) {
		return 0, 0, errors.New(`has a $ before neither a digit nor {name} (a dollar sign that stands for itself is written \$)`)
	}
	group, size = int(rest[0]-'0'), 1
	if group > re.NumSubexp() {
		return 0, 0, fmt.Errorf("refers to group $%d, the regular expression has %d", group, re.NumSubexp())
	}
	// A further digit belongs to the number as long as there are so many groups.
	for size < len(rest) && isDigit(rest[size]) {
		next := group*10 + int(rest[size]-'0')
		if next > re.NumSubexp() {
			break
		}
		group = next
		size++
	}
	return group, size, nil
}

var referenceName = regexp.MustCompile(`^\{([A-Za-z][A-Za-z0-9]*)\}`)

func namedReference(rest string, re *regexp.Regexp) (group, size int, err error) {
	found := referenceName.FindStringSubmatch(rest)
	if found == nil {
		return 0, 0, errors.New("has a ${ that is no ${name}, where a name is letters and digits")
	}
	if group = slices.Index(re.SubexpNames(), found[1]); group < 0 {
		return 0, 0, fmt.Errorf("refers to the group ${%s}, which the regular expression does not have", found[1])
	}
	return group, len(found[0]), nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// AppendTo appends the replacement for a match in src, whose groups are at the places that regexp
// calls loc.
func (r Replacement) AppendTo(dst, src []byte, loc []int) []byte {
	for i := range r {
		p := &r[i]
		switch {
		case p.Group < 0:
			dst = append(dst, p.Literal...)
		case loc[2*p.Group] >= 0: // a group that took no part gives nothing
			dst = append(dst, src[loc[2*p.Group]:loc[2*p.Group+1]]...)
		}
	}
	return dst
}
