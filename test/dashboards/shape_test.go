package dashboards

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What can be said of the dashboards as they lie there. tools/deploycheck decodes them by Grafana's
// own types.

// kinds are the panels that are in use and not deprecated.
var kinds = []string{"row", "stat", "timeseries", "table", "heatmap", "state-timeline"}

// anchors are what links to the headings of a page in docs name, in the way of GitHub.
func anchors(t *testing.T, page string) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	must(t, err)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

func TestShape(t *testing.T) {
	const docs = "https://github.com/cdc-relay/cdc-relay/blob/main/docs/"
	headings := map[string][]string{}
	for _, page := range []string{"metrics.md", "dead-letters.md", "running.md"} {
		headings[page] = anchors(t, page)
	}
	uids := map[string]string{"cdc-relay-outbox": "Outbox reliability", "cdc-relay-slots": "Replication slots", "cdc-relay-consumers": "Consumer Processing"}
	for _, b := range boards(t) {
		if uids[b.UID] != b.Title {
			t.Errorf("dashboard %q has the uid %q; links to it would break", b.Title, b.UID)
		}
		for _, absent := range []string{"vector(", "absent("} {
			if strings.Contains(b.text, absent) {
				t.Errorf("%s: %s hides a series that is not there", b.Title, absent)
			}
		}
		ids := map[int]bool{}
		for _, p := range b.Panels {
			if ids[p.ID] {
				t.Errorf("%s: two panels have the id %d", b.Title, p.ID)
			}
			ids[p.ID] = true
			if !slices.Contains(kinds, p.Type) {
				t.Errorf("%s: panel %q is of type %q", b.Title, p.Title, p.Type)
			}
			if p.Type == "row" {
				continue
			}
			if len(p.Targets) == 0 || p.FieldConfig.Defaults.Unit == "" || !strings.HasSuffix(p.Description, ".") {
				t.Errorf("%s: panel %q has no query, no unit or no description", b.Title, p.Title)
			}
			for _, link := range p.Links {
				target, ok := strings.CutPrefix(link.URL, docs)
				page, anchor, _ := strings.Cut(target, "#")
				if !ok || !slices.Contains(headings[page], anchor) {
					t.Errorf("%s: panel %q links to %s, and there is no such heading", b.Title, p.Title, link.URL)
				}
			}
			if len(p.Links) == 0 {
				t.Errorf("%s: panel %q links to no runbook", b.Title, p.Title)
			}
			for _, q := range p.Targets {
				if chosen := (source{"prometheus", "${datasource}"}); p.Datasource == nil || *p.Datasource != chosen || q.Datasource == nil || *q.Datasource != chosen {
					t.Errorf("%s: panel %q asks another data source than the chosen one", b.Title, p.Title)
				}
			}
		}
	}
}
