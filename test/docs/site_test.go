package docs

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// navSection is a part of the site's navigation: the pages under one heading, in their order. A
// page with pages under it is the first of these.
type navSection struct {
	name  string
	pages []string
}

// navigation is that of tools/site/mkdocs.yml, and all pages in it. Pages without a heading come
// first.
func navigation(t *testing.T) (sections []navSection, all []string) {
	t.Helper()
	var config struct {
		Nav []any `yaml:"nav"`
	}
	must(t, yaml.UnmarshalWithOptions([]byte(pages.Text(t, "tools/site/mkdocs.yml")), &config, yaml.UseOrderedMap()))
	sections = []navSection{{}}
	for _, item := range config.Nav {
		if page, ok := item.(string); ok {
			sections[0].pages = append(sections[0].pages, page)
			all = append(all, page)
			continue
		}
		for _, entry := range item.(yaml.MapSlice) {
			section := navSection{name: entry.Key.(string)}
			for _, page := range entry.Value.([]any) {
				below := navPages(page)
				section.pages = append(section.pages, below[0])
				all = append(all, below...)
			}
			sections = append(sections, section)
		}
	}
	return sections, all
}

// navPages are the pages of an entry, and of those in it.
func navPages(item any) (all []string) {
	switch item := item.(type) {
	case string:
		return []string{item}
	case []any:
		for _, one := range item {
			all = append(all, navPages(one)...)
		}
	case yaml.MapSlice:
		for _, entry := range item {
			all = append(all, navPages(entry.Value)...)
		}
	}
	return all
}

// The documentation site has each page of docs/ once, and the pages of the repository that its
// readers need. The generator itself is tried in test/console, each night.
func TestSiteHasEachPageOnce(t *testing.T) {
	t.Parallel()
	_, all := navigation(t)
	for _, page := range pages.All(t) {
		on := 0
		for _, listed := range all {
			if listed == page {
				on++
			}
		}
		wanted := strings.HasPrefix(page, "docs/") || !strings.Contains(page, "/")
		if wanted && on != 1 || on > 1 {
			t.Errorf("tools/site/mkdocs.yml has %s %d times", page, on)
		}
	}
	for _, page := range all {
		if fault := leadsTo(page, ""); fault != "" {
			t.Errorf("tools/site/mkdocs.yml has %s: %s", page, fault)
		}
	}
}

// The navigation has the headings of docs/README.md, and under each one pages that are linked
// there, in the order of those links.
func TestSiteIsInOrder(t *testing.T) {
	t.Parallel()
	const index = "docs/README.md"
	sections, _ := navigation(t)
	if got := sections[0].pages; !slices.Equal(got, []string{"README.md", index}) {
		t.Errorf("the navigation begins with %q", got)
	}
	tables := regexp.MustCompile(`(?m)^\| (.+) \| \|$`).Split(pages.Text(t, index), -1)[1:]
	names := matches(`(?m)^\| (.+) \| \|$`, pages.Text(t, index))
	if len(names) < 5 || len(names) != len(sections)-1 {
		t.Fatalf("%s has %d headings, the navigation %d", index, len(names), len(sections)-1)
	}
	for n, section := range sections[1:] {
		if section.name != names[n] {
			t.Errorf("the navigation has %q where %s has %q", section.name, index, names[n])
		}
		var linked []string
		for _, link := range matches(`\]\(([^)#\s]+)`, tables[n]) {
			linked = append(linked, path.Join("docs", link))
		}
		last := -1
		for _, page := range section.pages {
			at := slices.Index(linked, page)
			if at < last || at < 0 {
				t.Errorf("%q of the navigation has %s where %s links to %q", section.name, page, index, linked)
			}
			last = at
		}
	}
}

// The form for a bug asks for what SUPPORT.md says should be sent.
func TestBugFormAsks(t *testing.T) {
	t.Parallel()
	var form struct {
		Body []struct {
			ID         string         `yaml:"id"`
			Type       string         `yaml:"type"`
			Attributes map[string]any `yaml:"attributes"`
		} `yaml:"body"`
	}
	must(t, yaml.Unmarshal([]byte(pages.Text(t, ".github/ISSUE_TEMPLATE/bug.yml")), &form))
	asked := ""
	for _, field := range form.Body {
		label, _ := field.Attributes["label"].(string)
		asked += label + "\n"
		if field.Type != "markdown" && (label == "" || field.ID == "") {
			t.Errorf("a field of bug.yml has no label or no id: %+v", field)
		}
	}
	commands := pages.Fences(pages.Section(t, "SUPPORT.md", "What to send"), "sh")
	if len(commands) != 1 {
		t.Fatalf("SUPPORT.md has %d lists of commands", len(commands))
	}
	for command := range strings.Lines(commands[0].Text) {
		if !strings.Contains(asked, "`"+strings.TrimSpace(command)+"`") {
			t.Errorf("bug.yml does not ask for %s", command)
		}
	}
}
