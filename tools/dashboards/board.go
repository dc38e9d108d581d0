package main

import (
	"regexp"
	"strings"

	"github.com/prometheus/common/model"
)

// This file is what is read: a dashboard, and the recorded answers of its queries.

type recording struct {
	Start, End int64 // Unix milliseconds
	Dashboards map[string]map[int][]answer
}

type answer struct {
	Expr   string
	Legend string
	Now    model.Vector
	Over   model.Matrix
}

type board struct {
	UID, Title, Description string
	Panels                  []panel
}

type panel struct {
	ID              int
	Type, Title     string
	GridPos         struct{ H, W, X, Y int }
	Targets         []struct{}
	Options         options
	FieldConfig     fieldConfig
	Transformations []struct {
		Options struct {
			ExcludeByName map[string]bool
			IndexByName   map[string]int
			RenameByName  map[string]string
		}
	}
}

type options struct {
	ColorMode string
	Legend    struct {
		ShowLegend             bool
		DisplayMode, Placement string
	}
}

type fieldConfig struct {
	Defaults  field
	Overrides []struct {
		Matcher    struct{ Options any }
		Properties []struct {
			ID    string
			Value any
		}
	}
}

type field struct {
	Unit, NoValue string
	Decimals      *int
	Max           *float64
	Color         struct{ Mode string }
	Thresholds    struct {
		Steps []struct {
			Color string
			Value *float64
		}
	}
	Mappings []mapping
	Custom   struct {
		DrawStyle   string
		FillOpacity int
		Stacking    struct{ Mode string }
	}
}

type mapping struct {
	Options map[string]struct{ Text, Color string }
}

// override is the value of a property for a series or column; nil when there is none.
func (p *panel) override(name, property string) any {
	for _, o := range p.FieldConfig.Overrides {
		if o.Matcher.Options != name {
			continue
		}
		for _, prop := range o.Properties {
			if prop.ID == property {
				return prop.Value
			}
		}
	}
	return nil
}

// unit is that of a series or column.
func (p *panel) unit(name string) string {
	if unit, ok := p.override(name, "unit").(string); ok {
		return unit
	}
	return p.FieldConfig.Defaults.Unit
}

var label = regexp.MustCompile(`\{\{(\w+)\}\}`)

// legend is the name of a series.
func legend(format string, metric model.Metric) string {
	return strings.TrimSpace(label.ReplaceAllStringFunc(format, func(use string) string {
		return string(metric[model.LabelName(label.FindStringSubmatch(use)[1])])
	}))
}

// threshold is the colour of a value.
func (f *field) threshold(v float64) string {
	colour := "text"
	for _, step := range f.Thresholds.Steps {
		if step.Value == nil || v >= *step.Value {
			colour = step.Color
		}
	}
	return colour
}

// mapped is the word that stands for a value, and its colour.
func mapped(mappings []mapping, v string) (text, colour string, ok bool) {
	for _, m := range mappings {
		if word, ok := m.Options[v]; ok {
			return word.Text, word.Color, true
		}
	}
	return "", "", false
}
