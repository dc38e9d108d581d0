// Package regex compiles Java's regular expressions with Go's (RE2). What means the same is written
// the same or in other words. What RE2 lacks, or would read differently, is refused by its name. It
// is pure.
package regex

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// Compile compiles a regular expression of java.util.regex, or names what of it RE2 lacks.
func Compile(pattern string) (*regexp.Regexp, error) {
	t := &translation{rest: pattern}
	if err := t.run(); err != nil {
		return nil, err
	}
	parsed, err := syntax.Parse(t.out.String(), syntax.Perl)
	if err != nil {
		return nil, errors.New("is no regular expression that RE2 takes: " + strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if repeatsNothing(parsed) {
		return nil, errors.New("repeats a group that may match nothing, such as (a*)+: Java and RE2 do not agree on what it holds then")
	}
	return regexp.Compile(t.out.String())
}

// repeatsNothing finds a repetition whose last turn may be empty, with a group inside.
func repeatsNothing(re *syntax.Regexp) bool {
	switch re.Op { //nolint:exhaustive // the others repeat nothing
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		if re.MaxCap() > 0 && mayBeEmpty(re.Sub[0]) {
			return true
		}
	}
	return slices.ContainsFunc(re.Sub, repeatsNothing)
}

func mayBeEmpty(re *syntax.Regexp) bool {
	switch re.Op { //nolint:exhaustive // the others match a character
	case syntax.OpEmptyMatch, syntax.OpStar, syntax.OpQuest, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	case syntax.OpLiteral:
		return len(re.Rune) == 0
	case syntax.OpRepeat:
		return re.Min == 0 || mayBeEmpty(re.Sub[0])
	case syntax.OpCapture, syntax.OpPlus:
		return mayBeEmpty(re.Sub[0])
	case syntax.OpAlternate:
		return slices.ContainsFunc(re.Sub, mayBeEmpty)
	case syntax.OpConcat:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !mayBeEmpty(sub) })
	}
	return false
}

func (t *translation) run() error {
	t.dotall = []bool{false}
	for t.rest != "" {
		if err := t.step(); err != nil {
			return err
		}
	}
	return nil
}

func (t *translation) step() error {
	was := t.atom
	t.atom = true
	switch c := t.rest[0]; c {
	case '\\':
		return t.escape()
	case '[':
		return t.class()
	case '(':
		return t.group()
	case ')':
		if len(t.dotall) > 1 {
			t.dotall = t.dotall[:len(t.dotall)-1]
		}
		t.out.WriteString(t.take(1))
	case '|':
		t.atom = false
		t.out.WriteString(t.take(1))
	case '.':
		t.take(1)
		if t.dotall[len(t.dotall)-1] {
			t.out.WriteString(`(?s:.)`)
		} else {
			t.out.WriteString(`[^` + lineEnds + `]`)
		}
	case '^':
		t.take(1)
		t.out.WriteString(`\A`)
	case '$':
		t.take(1)
		if t.rest != "" && t.rest[0] != ')' && t.rest[0] != '|' {
			return errors.New("has a $ that is not at an end; Java lets a line end follow there, RE2 does not")
		}
		t.out.WriteString(`\z`)
	case '*', '+', '?', '{':
		return t.repeat(was)
	default:
		_, size := utf8.DecodeRuneInString(t.rest)
		t.out.WriteString(regexp.QuoteMeta(t.take(size)))
	}
	return nil
}

var counted = regexp.MustCompile(`^\{[0-9]+(,[0-9]*)?\}`)

// repeat takes a quantifier behind an atom.
func (t *translation) repeat(atom bool) error {
	n := 1
	if t.rest[0] == '{' {
		if n = len(counted.FindString(t.rest)); n == 0 {
			return errors.New("has a { that is no repetition; Java wants it written \\{")
		}
	}
	if !atom {
		return fmt.Errorf("has %q with nothing to repeat before it", t.rest[:n])
	}
	t.out.WriteString(t.take(n))
	if strings.HasPrefix(t.rest, "+") {
		return lacking("a possessive quantifier (" + "+ behind a repetition)")
	}
	if strings.HasPrefix(t.rest, "?") {
		t.out.WriteString(t.take(1))
	}
	t.atom = false
	return nil
}

var (
	groupName  = regexp.MustCompile(`^\(\?<([A-Za-z][A-Za-z0-9]*)>`)
	groupFlags = regexp.MustCompile(`^\(\?([a-zA-Z]*)(-[a-zA-Z]*)?([:)])`)
)

// group takes the beginning of one.
func (t *translation) group() error {
	t.atom = false
	for _, refused := range []struct{ begin, name string }{
		{"(?=", "a lookahead (?=...)"},
		{"(?!", "a negative lookahead (?!...)"},
		{"(?<=", "a lookbehind (?<=...)"},
		{"(?<!", "a negative lookbehind (?<!...)"},
		{"(?>", "an atomic group (?>...)"},
	} {
		if strings.HasPrefix(t.rest, refused.begin) {
			return lacking(refused.name)
		}
	}
	dotall := t.dotall[len(t.dotall)-1]
	switch name, flags := groupName.FindStringSubmatch(t.rest), groupFlags.FindStringSubmatch(t.rest); {
	case !strings.HasPrefix(t.rest, "(?"):
		t.out.WriteString(t.take(1))
	case name != nil:
		if slices.Contains(t.names, name[1]) {
			return fmt.Errorf("has two groups of the name %s", name[1])
		}
		t.names = append(t.names, name[1])
		t.take(len(name[0]))
		t.out.WriteString("(?P<" + name[1] + ">")
	case flags != nil:
		on, off := flags[1], strings.TrimPrefix(flags[2], "-")
		if i := strings.IndexFunc(on+off, func(r rune) bool { return r != 'i' && r != 's' }); i >= 0 {
			return fmt.Errorf("has the flag (?%c), which RE2 does not have or takes for something else", (on + off)[i])
		}
		if strings.Contains(on, "s") {
			dotall = true
		}
		if strings.Contains(off, "s") {
			dotall = false
		}
		t.out.WriteString(t.take(len(flags[0])))
		if flags[3] == ")" { // from here to the end of the group that is open
			t.dotall[len(t.dotall)-1] = dotall
			return nil
		}
	default:
		return errors.New("has a group (?...) that Java does not know")
	}
	t.dotall = append(t.dotall, dotall)
	return nil
}
