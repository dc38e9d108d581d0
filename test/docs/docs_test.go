// Package docs checks the documentation against the repository: links, names of tests, metrics,
// states, reasons and exit codes. It needs no server and no binary. What runs the commands and
// configurations of the pages is in test/cli.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

func must(t *testing.T, err error) {
	t.Helper()
	await.Must(t, err)
}

// Links in all pages lead somewhere, also those to a heading.
func TestLinks(t *testing.T) {
	count := 0
	for _, page := range pages.All(t) {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(withoutCode(pages.Text(t, page)), -1) {
			if strings.Contains(link[1], "://") || strings.HasPrefix(link[1], "mailto:") {
				continue
			}
			count++
			file, heading, _ := strings.Cut(link[1], "#")
			target := page
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), file))
			}
			if fault := leadsTo(target, heading); fault != "" {
				t.Errorf("%s links to %s: %s", page, link[1], fault)
			}
		}
	}
	if count < 100 {
		t.Errorf("only %d links were found", count)
	}
}

// The code, the samples and the pages name pages and headings that exist.
func TestPagesThatAreNamedExist(t *testing.T) {
	count := 0
	for _, file := range textFiles(t) {
		for _, named := range regexp.MustCompile(`\bdocs/[a-z0-9-]+\.md(#[a-z0-9_-]+)?`).FindAllString(pages.Text(t, file), -1) {
			count++
			page, heading, _ := strings.Cut(named, "#")
			if fault := leadsTo(page, heading); fault != "" {
				t.Errorf("%s names %s: %s", file, named, fault)
			}
		}
	}
	if count < 50 {
		t.Errorf("only %d names of pages were found", count)
	}
}

// leadsTo says what is wrong with a link to a file and a heading of it; "" if nothing is.
func leadsTo(path, heading string) string {
	path = filepath.Join(pages.Root(), path)
	if _, err := os.Stat(path); err != nil {
		return "there is no such file"
	}
	if heading == "" {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil || !slices.Contains(pages.Anchors(string(text)), heading) {
		return "there is no such heading"
	}
	return ""
}

// withoutCode is a page's text without its code blocks: a bracket there is no link.
func withoutCode(text string) string {
	return regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(text, "")
}

// textFiles are the files of the repository that may name a page, from the root.
func textFiles(t *testing.T) (files []string) {
	t.Helper()
	kinds := []string{".md", ".go", ".yml", ".yaml", ".sql", ".json", ".service", ".py", ".sh", ".java", ".env"}
	root := pages.Root()
	must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "dist", "testdata"}, name):
			return fs.SkipDir
		case !entry.IsDir() && (slices.Contains(kinds, filepath.Ext(name)) || slices.Contains([]string{"Makefile", "Dockerfile"}, name)):
			rel, err := filepath.Rel(root, path)
			files = append(files, filepath.ToSlash(rel))
			return err
		}
		return nil
	}))
	return files
}

// No line of a page is longer than 120 columns. Results of benchmarks and the list of compared
// cases have wide tables, and a diff is as wide as the code.
func TestWidth(t *testing.T) {
	for _, page := range pages.All(t) {
		if strings.HasPrefix(page, "bench/results/") || page == "test/debezium/CASES.md" {
			continue
		}
		n, diff := 0, false
		for line := range strings.Lines(pages.Text(t, page)) {
			n++
			if strings.HasPrefix(line, "```") {
				diff = line == "```diff\n"
			}
			if diff {
				continue
			}
			if width := utf8.RuneCountInString(strings.TrimRight(line, "\n")); width > 120 {
				t.Errorf("%s:%d has %d columns", page, n, width)
			}
		}
	}
}

// No page has a place where text was to be filled in: a line of capitals and underscores alone, or
// a figure in angle brackets. Each page has a title, and README.md or the list of decisions leads
// to it.
func TestPagesAreComplete(t *testing.T) {
	readme := pages.Text(t, "README.md")
	for _, page := range pages.All(t) {
		text := pages.Text(t, page)
		for _, line := range regexp.MustCompile(`(?m)^[A-Z_]{3,}$|^<[A-Za-z]+>?$|<[a-z]+: .*>`).FindAllString(text, -1) {
			t.Errorf("%s has %s", page, line)
		}
		if !strings.HasPrefix(page, "docs/") {
			continue
		}
		if !regexp.MustCompile(`(?s)^(<!--.*?-->\s*)?# \S`).MatchString(text) {
			t.Errorf("%s does not begin with a title", page)
		}
		index, link := readme, page
		if decision, ok := strings.CutPrefix(page, "docs/decisions/"); ok && decision != "README.md" {
			index, link = pages.Text(t, "docs/decisions/README.md"), decision
		}
		if !strings.Contains(index, "]("+link+")") {
			t.Errorf("README.md, or that of its folder, has no link to %s", page)
		}
	}
}
