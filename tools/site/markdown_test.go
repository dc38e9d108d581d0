package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// Lists, what is in them, and headings, as GitHub reads them and as Python's Markdown does.
func TestPlain(t *testing.T) {
	t.Parallel()
	for _, part := range []struct{ name, github, python string }{
		{"a list behind a paragraph", "Text:\n- one\n- two\n", "Text:\n\n- one\n- two\n"},
		{"a list behind a heading", "## Head\n- one\n", "## Head {#head}\n\n- one\n"},
		{"an item that goes on", "- one\n  goes on\n- two\n", "- one\n    goes on\n- two\n"},
		{"an item that goes on without blanks", "- one\ngoes on\n- two\n", "- one\n    goes on\n- two\n"},
		{"a list in a list", "- one\n  - deeper\n    goes on\n- two\n", "- one\n    - deeper\n        goes on\n- two\n"},
		{"a list in a numbered one", "1. one\n   - deeper\n2. two\n", "1. one\n    - deeper\n2. two\n"},
		{"a paragraph in an item", "- one\n\n  more\n- two\n", "- one\n\n    more\n\n- two\n"},
		{"the end of a list", "- one\n\nText\n\n- other\n", "- one\n\nText\n\n- other\n"},
		{"ten items", "10. ten\n\n    more\n", "10. ten\n\n    more\n"},
		{
			"code in an item", "1. one:\n\n   ```sh\n   do\n\n     it\n   ```\n2. two\n",
			"1. one:\n\n    ```sh\n    do\n\n      it\n    ```\n\n2. two\n",
		},
		{"code is as it was", "```text\n- a\n## b\n  - c\n```\n", "```text\n- a\n## b\n  - c\n```\n"},
		{
			"headings of one name", "## A `key_b`, and [more](x.md)\n\n## Back\n\n### Back\n\n### Back\n",
			"## A `key_b`, and [more](x.md) {#a-key_b-and-more}\n\n## Back {#back}\n\n### Back {#back-1}\n\n### Back {#back-2}\n",
		},
	} {
		if got := plain(part.github); got != part.python {
			t.Errorf("%s: %q became\n%q, want\n%q", part.name, part.github, got, part.python)
		}
	}
}

// The site keeps the words of each page, in their order, and its headings have GitHub's names.
func TestPlainKeepsPages(t *testing.T) {
	t.Parallel()
	for _, page := range pages.All(t) {
		text := pages.Text(t, page)
		got := plain(text)
		var names []string
		bare := headingName.ReplaceAllStringFunc(got, func(name string) string {
			names = append(names, strings.Trim(name, " {#}\n"))
			return "\n"
		})
		if want := pages.Anchors(text); !slices.Equal(names, want) {
			t.Errorf("%s has the headings %q, want %q", page, names, want)
		}
		if strings.Join(strings.Fields(bare), " ") != strings.Join(strings.Fields(text), " ") {
			t.Errorf("%s has other words", page)
		}
	}
}
