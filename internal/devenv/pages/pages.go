// Package pages reads the documentation for tests that compare a page with the code: a page's text,
// the text under one heading, the code blocks, the headings as links name them.
package pages

import (
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Root is the repository's folder: the nearest one above the working directory that has a .ci.
// Modules below it (tools/...) have a go.mod of their own, and no .ci.
func Root() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, ".ci")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			panic("the working directory is not in the repository")
		}
		dir = up
	}
}

// Text is a file's text. page is its path from the root, such as "docs/kafka.md".
func Text(t testing.TB, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(), page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Section is the text of a page under a heading, up to the next heading of the same or a higher
// level. heading is its words without the marks: "What Kafka answers". The test ends when the page
// has no such heading.
func Section(t testing.TB, page, heading string) string {
	t.Helper()
	section, ok := SectionOf(Text(t, page), heading)
	if !ok {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	return section
}

// SectionOf is Section for a text that was read already.
func SectionOf(text, heading string) (section string, ok bool) {
	var b strings.Builder
	level := 0
	for line, h := range lines(text) {
		switch {
		case level == 0 && h.words == heading && h.level > 0:
			level = h.level
		case level > 0 && h.level > 0 && h.level <= level:
			return b.String(), true
		case level > 0:
			b.WriteString(line)
		}
	}
	return b.String(), level > 0
}

// Fence is a fenced code block.
type Fence struct {
	Lang string // what stands behind the opening marks: "yaml", "sh", or ""
	Text string // its lines, without the indentation of a list
	Line int    // the line of its opening marks, from 1
}

// Fences are the code blocks of a text that have one of some languages, or all of them.
func Fences(text string, langs ...string) (all []Fence) {
	var open *Fence
	indent, n := "", 0
	for line := range strings.Lines(text) {
		n++
		found := fence.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		switch {
		case open == nil && found != nil:
			indent, open = found[1], &Fence{Lang: found[2], Line: n}
		case open != nil && found != nil && found[2] == "":
			if len(langs) == 0 || slices.Contains(langs, open.Lang) {
				all = append(all, *open)
			}
			open = nil
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent)
		}
	}
	return all
}

// Anchors are the names by which links reach a text's headings, as GitHub makes them.
func Anchors(text string) (names []string) {
	for _, h := range lines(text) {
		if h.level == 0 {
			continue
		}
		name := Anchor(h.words)
		if slices.Contains(names, name) {
			name += "-1"
		}
		names = append(names, name)
	}
	return names
}

// Anchor is the name by which a link reaches a heading: lower case, blanks as hyphens, without
// other punctuation.
func Anchor(heading string) string {
	heading = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(name, " ", "-")
}

// All are the paths of the repository's Markdown files, from the root.
func All(t testing.TB) (paths []string) {
	t.Helper()
	root := Root()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "dist", "node_modules", "testdata"}, entry.Name()):
			return fs.SkipDir
		case !entry.IsDir() && filepath.Ext(path) == ".md":
			rel, err := filepath.Rel(root, path)
			paths = append(paths, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestsIn are the tests in some folders and those below them, by name, with the source of their
// package: the name of a part stands there in quotes. dirs are paths from the root.
func TestsIn(t testing.TB, dirs ...string) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, dir := range dirs {
		for _, folder := range Folders(t, dir) {
			source := Source(t, folder, true)
			for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(source, -1) {
				names[found[1]] = source
			}
		}
	}
	return names
}

// Folders are a folder and all those below it, from the root.
func Folders(t testing.TB, dir string) (all []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(Root()), filepath.ToSlash(filepath.Clean(dir)), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Source is the text of a folder's Go files: its tests, or all others.
func Source(t testing.TB, dir string, ofTests bool) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Root(), dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") == ofTests {
			source.WriteString(Text(t, strings.TrimPrefix(file, Root())))
		}
	}
	return source.String()
}

var (
	fence   = regexp.MustCompile("^( *)```+([a-zA-Z]*)")
	heading = regexp.MustCompile(`^(#{1,6}) +(.*?) *$`)
)

// title is a heading's level, 1 to 6, and its words. A line that is no heading has level 0.
type title struct {
	level int
	words string
}

// lines are the lines of a text. A line in a code block is never a heading.
func lines(text string) iter.Seq2[string, title] {
	return func(yield func(string, title) bool) {
		inFence := false
		for line := range strings.Lines(text) {
			var h title
			trimmed := strings.TrimRight(line, "\r\n")
			if fence.MatchString(trimmed) {
				inFence = !inFence
			} else if found := heading.FindStringSubmatch(trimmed); found != nil && !inFence {
				h = title{level: len(found[1]), words: found[2]}
			}
			if !yield(line, h) {
				return
			}
		}
	}
}
