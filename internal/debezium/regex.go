// Java's regular expressions and replacements, as far as Go's (RE2) mean the same. Any other
// element is refused.

package debezium

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// element is an element of Java's syntax, and what RE2 writes for it, as regexp.Expand takes it.
type element struct {
	form func() *regexp.Regexp
	re2  string // "": it is refused
}

func elements(formsAndRE2 ...string) (list []element) {
	for pair := range slices.Chunk(formsAndRE2, 2) {
		list = append(list, element{lazy.Regexp(`^(?:` + pair[0] + `)`), pair[1]})
	}
	return list
}

const (
	same  = "$0"
	taken = `\\[dDwW]|\\[tnrfa]|\\[^A-Za-z0-9]` // escapes that RE2 knows by the same name
)

// The elements of each place, the first that matches counts. What matches none is refused.
var (
	outsideClass = elements(
		`\(\?(:|i\)|i:|<[A-Za-z][A-Za-z0-9]*>)`, same,
		`\(\?`, "",
		`([*+?]|\{[0-9]+(,[0-9]*)?\})\+`, "", // possessive
		`([*+?]|\{[0-9]+(,[0-9]*)?\})\??`, same,
		`\^`, `\A`,
		`\$$`, `\z`,
		`\$([|)])`, `\z$1`, // elsewhere Java lets a line end follow
		`\.`, `[^\n\r\x{85}\x{2028}\x{2029}]`,
		`\\b\{`, "", // a grapheme boundary
		taken+`|\\[bBAz]`, same,
		`\\s`, `[ \t\n\x0B\f\r]`, // RE2's lacks the vertical tab
		`\\S`, `[^ \t\n\x0B\f\r]`,
		`\[\^?\]?`, same,
		`[^\\{$]`, same,
	)
	insideClass = elements(
		`&&`, "", // an intersection
		`\\[dDwWs]-[^\]]`, "", // a range from several characters
		taken, same,
		`\\s`, `\s\x0B`, // as the end of a range RE2 refuses it, as Java does
		`[^\\\[]`, same,
	)
)

// compileRegex compiles a regular expression of java.util.regex, or quotes what of it is refused.
func compileRegex(pattern string) (*regexp.Regexp, error) {
	translated, err := translate(pattern)
	if err != nil {
		return nil, err
	}
	parsed, err := syntax.Parse(translated, syntax.Perl)
	if err != nil {
		return nil, errors.New("is no regular expression that RE2 takes: " + strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if repeatsNothing(parsed) {
		return nil, errors.New("repeats a group that may match nothing, such as (a*)+: Java and RE2 do not agree on what it holds then")
	}
	return regexp.Compile(translated)
}

// MatchesWhole reports whether a regular expression of java.util.regex matches a text as a whole.
func MatchesWhole(pattern, text string) (bool, error) {
	re, err := compileRegex("^(?:" + pattern + ")$")
	return err == nil && re.MatchString(text), err
}

func translate(pattern string) (string, error) {
	var out []byte
	inClass := false
	for rest := pattern; rest != ""; {
		known := outsideClass
		if inClass {
			known = insideClass
		}
		i := slices.IndexFunc(known, func(e element) bool { return e.form().MatchString(rest) })
		if i < 0 || known[i].re2 == "" {
			return "", fmt.Errorf("has %s, which RE2 lacks or reads differently", rest)
		}
		match := known[i].form().FindStringSubmatchIndex(rest)
		out = known[i].form().ExpandString(out, known[i].re2, rest, match)
		inClass = inClass && rest[0] != ']' || !inClass && rest[0] == '['
		rest = rest[match[1]:]
	}
	return string(out), nil
}

// repeatsNothing finds a repetition whose last turn may be empty, with a group inside.
func repeatsNothing(re *syntax.Regexp) bool {
	switch re.Op { //nolint:exhaustive // the others repeat nothing
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		if re.MaxCap() > 0 && mayBeEmpty("(?:"+re.Sub[0].String()+")") {
			return true
		}
	}
	return slices.ContainsFunc(re.Sub, repeatsNothing)
}

// mayBeEmpty looks where there is no character, and behind and before one, for the sake of \b.
func mayBeEmpty(group string) bool {
	return regexp.MustCompile("^"+group+"$").MatchString("") ||
		regexp.MustCompile("^a"+group+"$").MatchString("a") || regexp.MustCompile("^"+group+"a$").MatchString("a")
}

// javaTemplate translates a replacement: $n, ${name}, a backslash before what stands for itself.
// Java finds its faults when it replaces, at each event; here they are found at the start.
func javaTemplate(replacement string, re *regexp.Regexp) (string, error) {
	var out strings.Builder
	for rest := replacement; rest != ""; {
		literal := rest[:1]
		switch rest[0] {
		case '$':
			group, size, err := reference(rest[1:], re)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&out, "${%d}", group)
			rest = rest[1+size:]
			continue
		case '\\':
			if rest = rest[1:]; rest == "" {
				return "", errors.New("ends in a backslash, which escapes nothing")
			}
			literal = rest[:1]
		}
		if literal == "$" {
			literal = "$$"
		}
		out.WriteString(literal)
		rest = rest[1:]
	}
	return out.String(), nil
}

var (
	referenceName   = lazy.Regexp(`^\{([A-Za-z][A-Za-z0-9]*)\}`)
	referenceNumber = lazy.Regexp(`^[0-9]+`)
)

// reference reads what follows a dollar sign.
func reference(rest string, re *regexp.Regexp) (group, size int, err error) {
	if name := referenceName().FindStringSubmatch(rest); name != nil {
		if group = slices.Index(re.SubexpNames(), name[1]); group < 0 {
			return 0, 0, fmt.Errorf("refers to the group ${%s}, which the regular expression does not have", name[1])
		}
		return group, len(name[0]), nil
	}
	digits := referenceNumber().FindString(rest)
	if digits == "" {
		return 0, 0, errors.New(`has a $ before neither a digit nor {name} (a dollar sign that stands for itself is written \$)`)
	}
	// A digit belongs to the number if there is a group of the longer number.
	for size = len(digits); size > 0; size-- {
		if group, err = strconv.Atoi(digits[:size]); err == nil && group <= re.NumSubexp() {
			return group, size, nil
		}
	}
	return 0, 0, fmt.Errorf("refers to group $%s, the regular expression has %d", digits, re.NumSubexp())
}
