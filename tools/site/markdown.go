// The pages are written as GitHub reads Markdown. Python's Markdown, which the generator has, wants
// a blank line before a list and four columns for what is in one, and names headings otherwise.

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

var (
	fenceLine   = regexp.MustCompile("^( *)(```+)")
	headingLine = regexp.MustCompile(`^(#{1,6}) +(.*?) *$`)
	itemLine    = regexp.MustCompile(`^( *)([-*+]|\d{1,9}[.)])( +)\S`)
)

// plain is a text of GitHub's Markdown as Python's Markdown reads it.
func plain(text string) string {
	var b strings.Builder
	var lists []int // the columns at which the contents of the lists around a line begin
	var names []string
	inCode, blank := false, true
	apart := true // the next item of a list needs a blank line before it
	shift := 0    // of the lines of a code block
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		indent := len(line) - len(strings.TrimLeft(line, " "))
		fence := fenceLine.MatchString(line)
		item := itemLine.FindStringSubmatch(line)
		switch {
		case inCode:
			if line != "" {
				line = moved(line, shift)
			}
			inCode = !fence
			b.WriteString(line + "\n")
			blank = false
			continue
		case strings.TrimSpace(line) == "":
			b.WriteString("\n")
			blank, apart = true, true
			continue
		}
		// A line that continues a paragraph stays in its list, however it is indented.
		if heading := headingLine.MatchString(line); blank || item != nil || fence || heading {
			for len(lists) > 0 && indent < lists[len(lists)-1] {
				lists = lists[:len(lists)-1]
			}
		}
		at, begins := 0, 0
		if len(lists) > 0 {
			at, begins = 4*len(lists), lists[len(lists)-1]
		}
		switch {
		case fence:
			inCode, shift = true, at-begins
			line = moved(line, shift)
		case item != nil:
			if apart && !blank {
				b.WriteString("\n")
			}
			line = strings.Repeat(" ", at) + strings.TrimLeft(line, " ")
			lists = append(lists, indent+len(item[2])+len(item[3]))
		case len(lists) > 0:
			line = strings.Repeat(" ", at) + strings.TrimLeft(line, " ")
		default:
			if found := headingLine.FindStringSubmatch(line); found != nil {
				name := anchor(found[2], names)
				names = append(names, name)
				line = fmt.Sprintf("%s {#%s}", line, name)
			}
		}
		b.WriteString(line + "\n")
		blank = false
		if item != nil || len(lists) == 0 {
			apart = item == nil
		}
		apart = apart || fence
	}
	return b.String()
}

// anchor is the name of a heading behind others of its page, as GitHub makes it.
func anchor(words string, before []string) string {
	name := pages.Anchor(words)
	for n, whole := 1, name; slices.Contains(before, name); n++ {
		name = fmt.Sprintf("%s-%d", whole, n)
	}
	return name
}

// moved is a line that stands n columns to the right, or to the left.
func moved(line string, n int) string {
	if n < 0 {
		return strings.TrimPrefix(line, strings.Repeat(" ", -n))
	}
	return strings.Repeat(" ", n) + line
}
