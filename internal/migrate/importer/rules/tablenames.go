// Finding the names of tables that a pattern stands for, when they can be counted.

package rules

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/regex"
)

// matches is Java's matches: the whole text.
func matches(re *regexp.Regexp, text string) bool {
	re.Longest()
	at := re.FindStringIndex(text)
	return at != nil && at[0] == 0 && at[1] == len(text)
}

const maxTables = 64

// finite is every text that a pattern fits, when they are few. A dot alone is read as the dot it is
// meant to be.
func finite(pattern string) ([]string, error) {
	if _, err := regex.Compile(pattern); err != nil {
		return nil, err
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, errors.New("is no regular expression")
	}
	return expandRegex(re)
}

func expandRegex(re *syntax.Regexp) ([]string, error) {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{folded(re, string(re.Rune))}, nil
	case syntax.OpAnyCharNotNL, syntax.OpAnyChar:
		return []string{"."}, nil
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine:
		return []string{""}, nil
	case syntax.OpCapture:
		return expandRegex(re.Sub[0])
	case syntax.OpQuest:
		some, err := expandRegex(re.Sub[0])
		return append([]string{""}, some...), err
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			some, err := expandRegex(sub)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		return bounded(all)
	case syntax.OpConcat:
		return expandConcat(re.Sub)
	case syntax.OpCharClass:
		var all []string
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1] && len(all) <= maxTables; r++ {
				if name := folded(re, string(r)); !slices.Contains(all, name) {
					all = append(all, name)
				}
			}
		}
		return bounded(all)
	default:
		return nil, errors.New("fits more tables than can be named")
	}
}

// expandConcat is every text of the first part followed by every one of the next.
func expandConcat(parts []*syntax.Regexp) ([]string, error) {
	all := []string{""}
	for _, part := range parts {
		some, err := expandRegex(part)
		if err != nil {
			return nil, err
		}
		var next []string
		for _, head := range all {
			for _, tail := range some {
				next = append(next, head+tail)
			}
		}
		if all, err = bounded(next); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// folded is a text in lower case where the pattern takes either, since that is how PostgreSQL has
// names that are not quoted. The parser has it in capitals.
func folded(re *syntax.Regexp, text string) string {
	if re.Flags&syntax.FoldCase == 0 {
		return text
	}
	return strings.ToLower(text)
}

// folds is true for a pattern of which some part takes upper and lower case alike.
func folds(pattern string) bool {
	re, err := syntax.Parse(pattern, syntax.Perl)
	return err == nil && anyFolds(re)
}

func anyFolds(re *syntax.Regexp) bool {
	return re.Flags&syntax.FoldCase != 0 || slices.ContainsFunc(re.Sub, anyFolds)
}

func bounded(all []string) ([]string, error) {
	if len(all) > maxTables {
		return nil, fmt.Errorf("fits more than %d tables", maxTables)
	}
	return all, nil
}
