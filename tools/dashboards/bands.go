package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot/vg"
)

// heatmap draws the buckets of a histogram; its series are cumulative.
func (d *painter) heatmap() {
	type bucket struct {
		le     float64
		points map[int64]float64
	}
	var all []bucket
	for _, c := range d.curves() {
		le, err := strconv.ParseFloat(c.name, 64)
		if err == nil {
			all = append(all, bucket{le, c.points})
		}
	}
	slices.SortFunc(all, func(a, b bucket) int {
		if a.le < b.le {
			return -1
		}
		return 1
	})
	most := 0.0
	in := func(i int, t int64) float64 {
		v := all[i].points[t]
		if i > 0 {
			v -= all[i-1].points[t]
		}
		return v
	}
	for i := range all {
		for t := range all[i].points {
			most = max(most, in(i, t))
		}
	}
	r := d.Rectangle
	r.Min.X += 42
	a := d.axes(r, "", 1)
	small := letter(7.5, false, colours["grey"])
	height := (a.Max.Y - a.Min.Y) / vg.Length(len(all))
	width := a.x(d.start.UnixMilli()+1000) - a.x(d.start.UnixMilli())
	for i, b := range all {
		y := a.Min.Y + vg.Length(i)*height
		name := "more"
		if !math.IsInf(b.le, 1) {
			name = write("s", b.le, nil, d.end)
		}
		say(d.Canvas, small, a.Min.X-4-long(small, name), y+height-3, name)
		for t := range b.points {
			if n := in(i, t); n > 0.01 {
				fill(d.Canvas, faint(colours["orange"], uint8(40+215*math.Sqrt(n/most))), a.x(t)-width, y+0.4, a.x(t), y+height-0.4)
			}
		}
	}
}

// timeline draws bands of states.
func (d *painter) timeline() {
	all := d.curves()
	f := &d.p.FieldConfig.Defaults
	small := letter(8, false, colours["text"])
	var widest vg.Length
	for _, c := range all {
		widest = max(widest, long(small, c.name))
	}
	r := d.Rectangle
	r.Min.X += widest + 8
	a := d.axes(r, "", 1)
	height := (a.Max.Y - a.Min.Y) / vg.Length(len(all))
	at := times(all)
	for i, c := range all {
		y := a.Max.Y - vg.Length(i+1)*height
		say(d.Canvas, small, d.Min.X+2, y+height/2-3, c.name)
		from, state := int64(0), math.NaN()
		flush := func(until int64) {
			text, colour, ok := mapped(f.Mappings, fmt.Sprint(state))
			if !ok {
				return
			}
			fill(d.Canvas, colours[colour], a.x(from), y+2, a.x(until), y+height-2)
			ink := letter(7.5, true, colours["white"])
			if long(ink, text)+6 < a.x(until)-a.x(from) {
				say(d.Canvas, ink, a.x(from)+4, y+height/2-3, text)
			}
		}
		for _, t := range at {
			v, ok := c.points[t]
			if !ok {
				v = math.NaN()
			}
			if v != state {
				flush(t)
				from, state = t, v
			}
		}
		flush(d.end.UnixMilli())
	}
}
