// Java's regular expressions as Go's (RE2). What means the same is written the same or in other words; what RE2 lacks, or would read
// differently, is refused by its name.

package debezium

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// javaRegex compiles a regular expression of java.util.regex.
func javaRegex(pattern string) (*regexp.Regexp, error) {
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

// translation walks a pattern from left to right.
type translation struct {
	rest   string
	out    strings.Builder
	names  []string // of the groups so far
	dotall []bool   // (?s) in the open groups, the innermost last
	atom   bool     // what was written last can be repeated
}

const (
	// lineEnds are what Java's dot does not match; RE2's leaves out the first only.
	lineEnds = `\n\r\x{85}\x{2028}\x{2029}`
	// spaces are Java's \s; RE2's lacks the vertical tab.
	spaces      = ` \t\n\x0B\f\r`
	verticals   = `\n\x0B\f\r\x{85}\x{2028}\x{2029}`
	horizontals = ` \t\x{A0}\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}`
)

func lacking(what string) error {
	return fmt.Errorf("has %s, which RE2 does not have", what)
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

// take takes the next n bytes.
func (t *translation) take(n int) string {
	taken := t.rest[:n]
	t.rest = t.rest[n:]
	return taken
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
		{"(?=", "a lookahead (?=...)"}, {"(?!", "a negative lookahead (?!...)"}, {"(?<=", "a lookbehind (?<=...)"},
		{"(?<!", "a negative lookbehind (?<!...)"}, {"(?>", "an atomic group (?>...)"},
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

// character takes an escape that means the same outside and inside a class: one character, or a property.
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
