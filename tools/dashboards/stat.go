package main

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot/vg"
)

// stat writes one number large, or several in rows with their names.
func (d *painter) stat() {
	type shown struct {
		name, value string
		colour      string
	}
	var all []shown
	f := &d.p.FieldConfig.Defaults
	for _, a := range d.answers {
		for _, sample := range a.Now {
			name, v := legend(a.Legend, sample.Metric), float64(sample.Value)
			text, colour, ok := mapped(f.Mappings, fmt.Sprint(v))
			if !ok {
				colour = f.threshold(v)
				if fixed, ok := d.p.override(name, "color").(map[string]any); ok {
					colour = fmt.Sprint(fixed["fixedColor"])
				}
				if text = write(d.p.unit(name), v, f.Decimals, d.end); math.IsNaN(v) {
					text = f.NoValue
				}
			}
			all = append(all, shown{name, text, colour})
		}
	}
	if len(all) == 0 {
		all = append(all, shown{"", f.NoValue, "text"})
	}
	if len(all) == 1 && all[0].name == "" {
		ink := colours[all[0].colour]
		switch d.p.Options.ColorMode {
		case "background":
			fill(d.Canvas, ink, d.Min.X, d.Min.Y, d.Max.X, d.Max.Y)
			ink = color.White
		case "none":
			ink = colours["text"]
		}
		s := letter(26, true, ink)
		for long(s, all[0].value) > d.Max.X-d.Min.X-12 {
			s.Font.Size--
		}
		say(d.Canvas, s, (d.Min.X+d.Max.X-long(s, all[0].value))/2, (d.Min.Y+d.Max.Y)/2-s.Font.Size*0.35, all[0].value)
		return
	}
	height := (d.Max.Y - d.Min.Y - 6) / vg.Length(len(all))
	for i, one := range all {
		y := d.Max.Y - vg.Length(i)*height - height/2
		name, value := letter(10, false, colours["text"]), letter(min(20, height*0.55), true, colours[one.colour])
		say(d.Canvas, value, d.Max.X-10-long(value, one.value), y-value.Font.Size*0.35, one.value)
		say(d.Canvas, name, d.Min.X+9, y-3.5, clip(name, one.name, d.Max.X-d.Min.X-30-long(value, one.value)))
	}
}
