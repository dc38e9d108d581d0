// A panel of a dashboard: what its file says, and what Prometheus answers.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// The interval between scrapes is that between two points of a picture, too.
const (
	scrape       = 2 * time.Second
	rateInterval = 4 * scrape // as Grafana would choose it
)

// board is of a dashboard's file what a picture needs.
type board struct {
	Panels     []*panel
	Templating struct {
		List []struct{ Name, AllValue string }
	}
}

type panel struct {
	Type, Title string
	Targets     []struct{ Expr, LegendFormat string }
	FieldConfig struct {
		Defaults struct {
			Unit   string
			Custom struct {
				FillOpacity float64
				Stacking    struct{ Mode string }
			}
			Mappings []struct{ Options map[string]json.RawMessage }
		}
		Overrides []struct {
			Matcher    struct{ Options any }
			Properties []struct {
				ID    string
				Value any
			}
		}
	}
	all    map[string]string // the variables' value for All
	series []series
}

// series is one line of a panel. values has one for each scrape interval; NaN: there was none.
type series struct {
	name   string
	colour string // of the dashboard; "": none is given
	values []float64
}

// find reads a panel from its dashboard.
func find(root string, s shown) (*panel, error) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/grafana", s.board))
	if err != nil {
		return nil, fmt.Errorf("read dashboard: %w", err)
	}
	var b board
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("decode dashboard %s: %w", s.board, err)
	}
	var found *panel
	for _, p := range b.Panels {
		if p.Title != s.title || p.Type != "timeseries" && p.Type != "state-timeline" {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%s has two panels %q", s.board, s.title)
		}
		found = p
	}
	if found == nil {
		return nil, fmt.Errorf("%s has no panel %q over time", s.board, s.title)
	}
	found.all = map[string]string{"__rate_interval": rateInterval.String()}
	for _, variable := range b.Templating.List {
		found.all[variable.Name] = variable.AllValue
	}
	return found, nil
}

var variable = regexp.MustCompile(`\$\{?(\w+)\}?`)

// ask fills the series by the panel's queries, with all variables at All.
func (p *panel) ask(ctx context.Context, prometheus *servers.Prometheus, from, to time.Time) error {
	for _, t := range p.Targets {
		expr := variable.ReplaceAllStringFunc(t.Expr, func(use string) string { return p.all[variable.FindStringSubmatch(use)[1]] })
		all, err := prometheus.Over(ctx, expr, from, to, scrape)
		if err != nil {
			return fmt.Errorf("panel %q: %w", p.Title, err)
		}
		for _, s := range all {
			name := legend(t.LegendFormat, s.Labels)
			p.series = append(p.series, series{name, p.colourOf(name), s.Values})
		}
	}
	return nil
}

var label = regexp.MustCompile(`\{\{(\w+)\}\}`)

// legend is the name of a series. An instance has another port in each run.
func legend(format string, labels map[string]string) string {
	return label.ReplaceAllStringFunc(format, func(use string) string {
		name := strings.Trim(use, "{}")
		if name == "instance" {
			return "relay-1"
		}
		return labels[name]
	})
}

// colourOf is the colour that the dashboard gives a series.
func (p *panel) colourOf(name string) string {
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			value, ok := property.Value.(map[string]any)
			if ok && property.ID == "color" && o.Matcher.Options == name {
				return fmt.Sprint(value["fixedColor"])
			}
		}
	}
	return ""
}

// word is what a state-timeline says for a value, and its colour.
func (p *panel) word(value float64) (text, colour string) {
	for _, m := range p.FieldConfig.Defaults.Mappings {
		var word struct{ Text, Color string }
		if raw, ok := m.Options[fmt.Sprint(value)]; ok && json.Unmarshal(raw, &word) == nil {
			return word.Text, word.Color
		}
	}
	return fmt.Sprint(value), ""
}
