package pages

import (
	"slices"
	"testing"
)

const sample = "# A page\n\nfirst\n\n## One `key`: yes\n\nin one\n\n```sh\n# no heading\nrun\n```\n\n### Below one\n\nalso in one\n\n" +
	"## Two\n\n- item\n\n  ```yaml\n  a:\n    b: 1\n  ```\n"

// A section ends at the next heading of its level. A comment in a code block is no heading.
func TestSection(t *testing.T) {
	for _, c := range []struct{ heading, want string }{
		{"One `key`: yes", "\nin one\n\n```sh\n# no heading\nrun\n```\n\n### Below one\n\nalso in one\n\n"},
		{"Below one", "\nalso in one\n\n"},
		{"Two", "\n- item\n\n  ```yaml\n  a:\n    b: 1\n  ```\n"},
	} {
		if got, ok := SectionOf(sample, c.heading); !ok || got != c.want {
			t.Errorf("%s: %q", c.heading, got)
		}
	}
	for _, none := range []string{"no heading", "One", ""} {
		if got, ok := SectionOf(sample, none); ok {
			t.Errorf("%q is found: %q", none, got)
		}
	}
}

// A code block has its language, its line, and no indentation of the list that it stands in.
func TestFences(t *testing.T) {
	want := []Fence{{"sh", "# no heading\nrun\n", 9}, {"yaml", "a:\n  b: 1\n", 22}}
	if got := Fences(sample); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := Fences(sample, "yaml"); !slices.Equal(got, want[1:]) {
		t.Errorf("%+v", got)
	}
}

// Anchors are as GitHub makes them.
func TestAnchors(t *testing.T) {
	want := []string{"a-page", "one-key-yes", "below-one", "two"}
	if got := Anchors(sample); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// The repository's pages are found from here.
func TestAll(t *testing.T) {
	all := All(t)
	for _, page := range []string{"README.md", "docs/kafka.md", "deploy/README.md"} {
		if !slices.Contains(all, page) {
			t.Errorf("%s is not among %q", page, all)
		}
	}
	if Text(t, "README.md") == "" || Section(t, "docs/kafka.md", "The message") == "" {
		t.Error("a page is empty")
	}
}
