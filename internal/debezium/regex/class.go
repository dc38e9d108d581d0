// Classes of characters in Java's regular expressions.

package regex

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// class takes [...]: single characters, ranges and the classes that have a name.
func (t *translation) class() error {
	t.take(1)
	t.out.WriteByte('[')
	if strings.HasPrefix(t.rest, "^") {
		t.out.WriteString(t.take(1))
	}
	for first := true; ; first = false {
		switch {
		case t.rest == "":
			return errors.New("has a class [...] without its end")
		case t.rest[0] == ']' && !first:
			t.out.WriteString(t.take(1))
			return nil
		case t.rest[0] == '[':
			return lacking("a class within a class [..[..]]")
		case strings.HasPrefix(t.rest, "&&"):
			return lacking("an intersection of classes &&")
		}
		low, single, err := t.member()
		if err != nil {
			return err
		}
		t.out.WriteString(low)
		if len(t.rest) < 2 || t.rest[0] != '-' || t.rest[1] == ']' {
			continue
		}
		if t.rest[1] == '[' || !single {
			return errors.New("has a range in a class that does not go from one character to another")
		}
		t.take(1)
		high, single, err := t.member()
		if err != nil {
			return err
		}
		if !single {
			return errors.New("has a range in a class that does not go from one character to another")
		}
		t.out.WriteString("-" + high)
	}
}

// member takes one member of a class, as RE2 writes it; single is false for one that stands for
// several characters.
func (t *translation) member() (text string, single bool, err error) {
	if t.rest[0] != '\\' {
		_, size := utf8.DecodeRuneInString(t.rest)
		return quoteInClass(t.take(size)), true, nil
	}
	if len(t.rest) < 2 {
		return "", false, errors.New("ends in a backslash")
	}
	switch c := t.rest[1]; c {
	case 'd', 'D', 'w', 'W':
		return t.take(2), false, nil
	case 's', 'h', 'v':
		t.take(2)
		return map[byte]string{'s': spaces, 'h': horizontals, 'v': verticals}[c], false, nil
	case 'S', 'H', 'V', 'Q', 'b', 'B', 'A', 'z':
		return "", false, fmt.Errorf(`has \%c within a class, which is refused here`, c)
	case 'p', 'P':
		if text, err = t.property(); err != nil {
			return "", false, err
		}
		if strings.HasPrefix(text, "[^") {
			return "", false, errors.New(`has \P of a POSIX name within a class, which is refused here`)
		}
		if inner, ok := strings.CutPrefix(text, "["); ok {
			text = strings.TrimSuffix(inner, "]")
		}
		return text, false, nil
	}
	text, err = t.character()
	return text, true, err
}
