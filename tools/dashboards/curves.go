package main

import (
	"fmt"
	"image/color"
	"maps"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// curve is one series of a panel.
type curve struct {
	name   string
	unit   string
	colour color.Color
	points map[int64]float64 // by Unix milliseconds
	at     []int64           // of all of them, and where there is no number
	most   float64
	last   float64
}

func (d *painter) curves() (all []*curve) {
	for _, a := range d.answers {
		for _, series := range a.Over {
			c := &curve{name: legend(a.Legend, series.Metric), points: map[int64]float64{}, colour: classic[len(all)%len(classic)]}
			c.unit = d.p.unit(c.name)
			if fixed, ok := d.p.override(c.name, "color").(map[string]any); ok {
				c.colour = colours[fmt.Sprint(fixed["fixedColor"])]
			}
			for _, pair := range series.Values {
				c.at = append(c.at, int64(pair.Timestamp))
				if v := float64(pair.Value); !math.IsNaN(v) && !math.IsInf(v, 0) {
					c.points[int64(pair.Timestamp)] = v
					c.most, c.last = max(c.most, v), v
				}
			}
			all = append(all, c)
		}
	}
	return all
}

// area is where a graph's points go.
type area struct {
	vg.Rectangle
	start, end time.Time
	most       float64
}

func (a *area) x(milliseconds int64) vg.Length {
	share := float64(milliseconds-a.start.UnixMilli()) / float64(a.end.Sub(a.start).Milliseconds())
	return a.Min.X + vg.Length(share)*(a.Max.X-a.Min.X)
}

func (a *area) y(v float64) vg.Length { return a.Min.Y + vg.Length(v/a.most)*(a.Max.Y-a.Min.Y) }

// axes draws the times below and returns what is left; values on the left when there is a unit.
func (d *painter) axes(r vg.Rectangle, unit string, most float64) *area {
	small := letter(7.5, false, colours["grey"])
	a := &area{Rectangle: r, start: d.start, end: d.end, most: most}
	a.Min.Y += 12
	a.Max.Y -= 4
	if unit != "" {
		var widest vg.Length
		values := rungs(unit, most)
		for _, v := range values {
			widest = max(widest, long(small, write(unit, v, nil, d.end)))
		}
		a.Min.X += widest + 5
		for _, v := range values {
			words := write(unit, v, nil, d.end)
			fill(d.Canvas, colours["light"], a.Min.X, a.y(v)-0.25, a.Max.X, a.y(v)+0.25)
			say(d.Canvas, small, a.Min.X-4-long(small, words), a.y(v)-2.6, words)
		}
	}
	for _, t := range clock(d.start, d.end) {
		x, words := a.x(t.UnixMilli()), hour(t)
		fill(d.Canvas, colours["light"], x-0.25, a.Min.Y, x+0.25, a.Max.Y)
		if x-long(small, words)/2 > r.Min.X && x+long(small, words)/2 < r.Max.X {
			say(d.Canvas, small, x-long(small, words)/2, r.Min.Y+2, words)
		}
	}
	return a
}

// timeseries draws lines, or stacked areas.
func (d *painter) timeseries() {
	all := d.curves()
	f := &d.p.FieldConfig.Defaults
	stacked := f.Custom.Stacking.Mode == "normal"
	sums := map[int64]float64{}
	most := 0.0
	for _, c := range all {
		for t, v := range c.points {
			if stacked {
				sums[t] += v
				v = sums[t]
			}
			most = max(most, v)
		}
	}
	if f.Max != nil {
		most = *f.Max
	}
	if most == 0 {
		most = 1
	}
	r := d.legends(all)
	a := d.axes(r, f.Unit, most*1.05)
	floor := map[int64]float64{}
	at := times(all)
	for _, c := range all {
		var run [][2]vg.Point // top and floor
		flush := func() {
			d.run(run, c.colour, stacked || f.Custom.FillOpacity > 0, stacked)
			run = nil
		}
		for _, t := range at {
			v, ok := c.points[t]
			if !ok || stacked && v == 0 {
				flush()
				continue
			}
			below := 0.0
			if stacked {
				below = floor[t]
				floor[t] += v
			}
			run = append(run, [2]vg.Point{{X: a.x(t), Y: a.y(below + v)}, {X: a.x(t), Y: a.y(below)}})
		}
		flush()
	}
}

// run draws a piece of a curve that has no gap.
func (d *painter) run(points [][2]vg.Point, c color.Color, filled, stacked bool) {
	if len(points) == 0 {
		return
	}
	var top, outline []vg.Point
	for _, p := range points {
		top = append(top, p[0])
	}
	if filled {
		outline = append(outline, top...)
		for i := len(points) - 1; i >= 0; i-- {
			outline = append(outline, points[i][1])
		}
		opacity := uint8(26)
		if stacked {
			opacity = 150
		}
		d.FillPolygon(faint(c, opacity), outline)
	}
	if flat := stacked && top[0].Y == points[0][1].Y && len(points) == 1; !flat {
		d.StrokeLines(draw.LineStyle{Color: c, Width: 1.3}, top)
	}
}

// times are those of all curves, in order.
func times(all []*curve) []int64 {
	at := map[int64]bool{}
	for _, c := range all {
		for _, t := range c.at {
			at[t] = true
		}
	}
	return slices.Sorted(maps.Keys(at))
}

// legends names the curves, and returns what is left for them.
func (d *painter) legends(all []*curve) vg.Rectangle {
	r := d.Rectangle
	small := letter(8, false, colours["text"])
	if d.p.Options.Legend.Placement == "right" {
		r.Max.X -= (r.Max.X - r.Min.X) * 0.4
		y := d.Max.Y - 10
		for _, c := range all {
			if c.most == 0 {
				continue // as the tooltip does
			}
			words := write(c.unit, c.most, nil, d.end)
			fill(d.Canvas, c.colour, r.Max.X+10, y+1, r.Max.X+20, y+4)
			say(d.Canvas, small, r.Max.X+24, y, clip(small, c.name, d.Max.X-r.Max.X-34-long(small, words)))
			say(d.Canvas, small, d.Max.X-long(small, words), y, words)
			y -= 13
		}
		return r
	}
	x, y := r.Min.X+4, r.Min.Y+2
	var lines int
	place := func(write bool) {
		x, lines = r.Min.X+4, 1
		for _, c := range all {
			width := long(small, c.name) + 24
			if x+width > r.Max.X && x > r.Min.X+4 {
				x, lines = r.Min.X+4, lines+1
				y -= 11
			}
			if write {
				fill(d.Canvas, c.colour, x, y+1, x+10, y+4)
				say(d.Canvas, small, x+13, y, c.name)
			}
			x += width
		}
	}
	place(false)
	y = r.Min.Y + 2 + vg.Length(lines-1)*11
	r.Min.Y = y + 11
	place(true)
	return r
}
