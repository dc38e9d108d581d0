// What Java's Matcher.replaceFirst takes as a replacement, as regexp.Expand takes it.

package regex

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// Template translates a replacement: $n, ${name}, and a backslash before what stands for itself.
// Java finds its faults when it replaces, at each event; here they are found at the start.
func Template(replacement string, re *regexp.Regexp) (string, error) {
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
	// All digits belong to the number as long as there are so many groups.
	for size = len(digits); size > 0; size-- {
		if group, err = strconv.Atoi(digits[:size]); err == nil && group <= re.NumSubexp() {
			return group, size, nil
		}
	}
	return 0, 0, fmt.Errorf("refers to group $%s, the regular expression has %d", digits, re.NumSubexp())
}
