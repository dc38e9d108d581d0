package config

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"unicode/utf8"
)

const page = "../../docs/configuration.md"

// docs/configuration.md is testdata/page.md, with the table of each section made of its keys.
// Every key is described, and is in one table.
func TestPage(t *testing.T) {
	p := newPage()
	text, err := os.ReadFile("testdata/page.md")
	if err != nil {
		t.Fatal(err)
	}
	made, err := p.fill(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range knownPaths() {
		if !slices.Contains(p.shown, path) {
			t.Errorf("testdata/page.md has no table with %s", path)
		}
	}
	if got, want := sectionsOf(p.shown), sectionsOf(knownPaths()); !slices.Equal(got, want) {
		t.Errorf("the sections are %q, want %q", got, want)
	}
	for n, line := range strings.Split(made, "\n") {
		if utf8.RuneCountInString(line) > pageColumns {
			t.Errorf("line %d has more than %d columns: shorten it, or move words to the second text of Doc\n%s", n+1, pageColumns, line)
		}
	}
	if *rewrite {
		if err := os.WriteFile(page, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if is, err := os.ReadFile(page); err != nil || string(is) != made {
		t.Errorf("%s is not what the keys say (%v); write it again: go test ./internal/config -run TestPage -rewrite", page, err)
	}
}

// sectionsOf are the top-level sections of some keys, each once.
func sectionsOf(paths []string) (names []string) {
	for _, path := range paths {
		if name, _, _ := strings.Cut(path, "."); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// A section that is in two tables, or has no key, is a fault.
func TestPageFaults(t *testing.T) {
	for text, want := range map[string]string{
		`{{keys "log"}} {{keys "log"}}`: "log.level is in two tables",
		`{{keys "lo"}}`:                 "there is no key in lo",
	} {
		if _, err := newPage().fill(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

const pageColumns = 120

// pageWriter makes the page.
type pageWriter struct {
	loader *loader
	shown  []string // the keys that are in a table
}

func newPage() *pageWriter {
	l := newLoader(nil)
	l.assign()
	return &pageWriter{loader: l}
}

func (p *pageWriter) fill(text string) (string, error) {
	tmpl, err := template.New("page").Funcs(template.FuncMap{"keys": p.keys}).Parse(text)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = tmpl.Execute(&out, nil)
	return out.String(), err
}

// keys is the table of a section's keys, and below it what does not fit into the table.
func (p *pageWriter) keys(section string) (string, error) {
	rows, more := []string{"| Key | Default | What it does |", "|---|---|---|"}, []string(nil)
	for _, k := range p.loader.fields() {
		if k.Name != section && !strings.HasPrefix(k.Name, section+".") {
			continue
		}
		if k.Does == "" {
			return "", fmt.Errorf("%s has no description: add .Doc(...) to it", k.Name)
		}
		if slices.Contains(p.shown, k.Name) {
			return "", fmt.Errorf("%s is in two tables", k.Name)
		}
		p.shown = append(p.shown, k.Name)
		value := "`" + k.Show() + "`"
		if parent, _, _ := cutLast(k.Name); parent == "sink" {
			value = "" // no sink is a default
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", k.Name, value, summary(&k)))
		if k.More != "" {
			more = append(more, wrap("- `"+k.Name+"`: "+k.More))
		}
	}
	if len(rows) == 2 {
		return "", fmt.Errorf("there is no key in %s", section)
	}
	if len(more) > 0 {
		rows = append(append(rows, ""), more...)
	}
	return strings.Join(rows, "\n"), nil
}

// unbroken is what stands on one line: a word, or code with blanks in it.
var unbroken = regexp.MustCompile("(?:`[^`]*`|[^\\s`])+")

// wrap breaks an item of a list into lines.
func wrap(item string) string {
	out, column := "", 0
	for i, word := range unbroken.FindAllString(item, -1) {
		width := utf8.RuneCountInString(word)
		if column+1+width > pageColumns {
			out, column = out+"\n ", 1
		}
		if i > 0 {
			out, column = out+" ", column+1
		}
		out, column = out+word, column+width
	}
	return out
}
