package main

import (
	"fmt"
	"slices"

	"github.com/prometheus/common/model"
	"gonum.org/v1/plot/vg"
)

// table writes the labels and values of instant queries, several joined by their labels, as the panel's transformations say.
func (d *painter) table() {
	var keys []model.Fingerprint
	cells := map[model.Fingerprint]map[string]string{}
	numbers := map[model.Fingerprint]map[string]float64{}
	order := map[string]int{}
	exclude, rename := map[string]bool{"__name__": true}, map[string]string{}
	for _, t := range d.p.Transformations {
		for name, at := range t.Options.IndexByName {
			order[name] = at
		}
		for name := range t.Options.ExcludeByName {
			exclude[name] = true
		}
		for name, other := range t.Options.RenameByName {
			rename[name] = other
		}
	}
	var columns []string
	seen := func(name string) bool {
		if !exclude[name] && !slices.Contains(columns, name) {
			columns = append(columns, name)
		}
		return !exclude[name]
	}
	for i, a := range d.answers {
		value := "Value"
		if len(d.answers) > 1 {
			value += " #" + string(rune('A'+i))
		}
		for _, sample := range a.Now {
			key := sample.Metric.Fingerprint()
			if cells[key] == nil {
				keys = append(keys, key)
				cells[key], numbers[key] = map[string]string{}, map[string]float64{}
			}
			var names []string
			for name := range sample.Metric {
				names = append(names, string(name))
			}
			slices.Sort(names)
			for _, name := range names {
				if seen(name) {
					cells[key][name] = string(sample.Metric[model.LabelName(name)])
				}
			}
			if seen(value) {
				numbers[key][value] = float64(sample.Value)
			}
		}
	}
	slices.SortStableFunc(columns, func(a, b string) int { return order[a] - order[b] })
	head, small := letter(9, true, colours["grey"]), letter(9, false, colours["text"])
	if len(keys) == 0 {
		say(d.Canvas, small, d.Min.X+6, d.Max.Y-16, d.p.FieldConfig.Defaults.NoValue)
		return
	}
	const row = 16 * vg.Length(1)
	width := (d.Max.X - d.Min.X) / vg.Length(len(columns))
	for at, column := range columns {
		shown := column
		if other, ok := rename[column]; ok {
			shown = other
		}
		title := shown
		if other, ok := d.p.override(shown, "displayName").(string); ok {
			title = other
		}
		x := d.Min.X + vg.Length(at)*width + 4
		say(d.Canvas, head, x, d.Max.Y-12, clip(head, title, width-6))
		for i, key := range keys {
			y := d.Max.Y - 12 - vg.Length(i+1)*row
			if y < d.Min.Y {
				break
			}
			fill(d.Canvas, colours["light"], d.Min.X, y+row-4.5, d.Max.X, y+row-4)
			words, ink := cells[key][column], colours["text"]
			if v, ok := numbers[key][column]; ok {
				var colour string
				if words, colour, ok = mapped(d.mappings(shown), fmt.Sprint(v)); !ok {
					words, colour = write(d.p.unit(shown), v, d.p.FieldConfig.Defaults.Decimals, d.end), d.p.FieldConfig.Defaults.threshold(v)
				}
				ink = colours[colour]
			}
			say(d.Canvas, letter(9, false, ink), x, y, clip(small, words, width-6))
		}
	}
}

// mappings are a column's own.
func (d *painter) mappings(column string) (all []mapping) {
	list, _ := d.p.override(column, "mappings").([]any)
	for _, one := range list {
		m := mapping{Options: map[string]struct{ Text, Color string }{}}
		entries, _ := one.(map[string]any)["options"].(map[string]any)
		for value, word := range entries {
			w, _ := word.(map[string]any)
			m.Options[value] = struct{ Text, Color string }{fmt.Sprint(w["text"]), fmt.Sprint(w["color"])}
		}
		all = append(all, m)
	}
	return all
}
