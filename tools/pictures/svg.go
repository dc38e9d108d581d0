// A picture of panels as SVG. One file has both colour schemes: it follows its reader's.

package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img">
<title>%s</title>
<style>
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",Arial,sans-serif;fill:#57606a}
.mono{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#24292f;white-space:pre}
.title{font-weight:600;fill:#24292f}.bold{font-weight:700}
.back{fill:#f6f8fa}.box{fill:#fff;stroke:#d0d7de}.grid{stroke:#eaeef2}
.line{fill:none;stroke:currentColor;stroke-width:1.5;stroke-linejoin:round}.area{fill:currentColor;fill-opacity:.15}
.full{fill:currentColor;shape-rendering:crispEdges}.word{fill:#fff}.away{fill:#cf222e;fill-opacity:.09}.moment{stroke:#57606a;stroke-dasharray:3 3}
.blue{color:#0969da}.orange{color:#bc4c00}.green{color:#1a7f37}.purple{color:#8250df}.red{color:#cf222e}.yellow{color:#9a6700}
@media(prefers-color-scheme:dark){
text{fill:#9198a1}.title,.mono{fill:#e6edf3}.back{fill:#0d1117}.box{fill:#151b23;stroke:#30363d}.grid{stroke:#262c36}
.word{fill:#0d1117}.away{fill:#f85149;fill-opacity:.16}.moment{stroke:#9198a1}
.blue{color:#58a6ff}.orange{color:#f0883e}.green{color:#3fb950}.purple{color:#bc8cff}.red{color:#f85149}.yellow{color:#d29922}
}
.mono.full{fill:currentColor}
</style>
<rect class="back" width="100%%" height="100%%" rx="6"/>
`

// What is where, in the units of the viewBox, which are pixels at its full width.
const (
	width        = 880.0
	margin       = 12.0
	headHeight   = 36.0
	panelHeight  = 190.0
	stateRow     = 26.0 // of a state-timeline
	above, below = 34.0, 22.0
	legendLine   = 18.0
)

// drawing is the text of a picture, as far as it is drawn.
type drawing struct{ strings.Builder }

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.Builder, format+"\n", args...) }

func (d *drawing) text(x, y float64, class, anchor, words string) {
	d.add(`<text x="%s" y="%s" class="%s" text-anchor="%s">%s</text>`, short(x), short(y), class, anchor, escape.Replace(words))
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// short writes a coordinate with one decimal, if it has one.
func short(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// widthOf is about how wide a text is.
func widthOf(words string) float64 { return 6.6 * float64(len(words)) }

// svg draws the picture.
func (p picture) svg(panels map[shown]*panel, s *story) string {
	column := (width - margin*float64(p.columns+1)) / float64(p.columns)
	var d drawing
	y, inRow := headHeight, 0
	for _, shown := range p.panels {
		box := plot{drawing: &d, panel: panels[shown], story: s, logarithmic: shown.logarithmic, y: y, height: panelHeight}
		box.x, box.width = margin+float64(inRow)*(column+margin), column
		if box.panel.Type == "state-timeline" {
			box.height = above + below + stateRow*float64(len(box.panel.series))
		}
		if shown.wide {
			box.width = width - 2*margin
		}
		box.draw()
		if inRow++; inRow == p.columns || shown.wide {
			y, inRow = y+box.height+margin, 0
		}
	}
	var all drawing
	all.add(head, width, y, escape.Replace(p.title))
	all.text(margin+2, 23, "title", "start", p.title)
	x := width - margin
	for i := len(s.events) - 1; i >= 0; i-- { // their names, from the right
		e := s.events[i]
		x -= widthOf(e.name)
		all.text(x, 23, "", "start", e.name)
		all.mark(e, x-16, x-6, 12, 26)
		x -= 30
	}
	return all.String() + d.String() + "</svg>\n"
}

// mark draws an event: a surface, or a line for a moment.
func (d *drawing) mark(e event, from, to, top, bottom float64) {
	if e.from.Equal(e.to) {
		x := (from + to) / 2
		d.add(`<path class="moment" d="M%s %sV%s"/>`, short(x), short(top), short(bottom))
		return
	}
	d.add(`<rect class="away" x="%s" y="%s" width="%s" height="%s"/>`, short(from), short(top), short(to-from), short(bottom-top))
}

// plot is a panel at its place.
type plot struct {
	*drawing
	*panel
	story                    *story
	logarithmic              bool
	x, y, width, height      float64
	left, right, top, bottom float64 // of what is inside the axes
}

var palette = []string{"blue", "orange", "green", "purple", "red", "yellow"}

func (p *plot) draw() {
	p.add(`<rect class="box" x="%s" y="%s" width="%s" height="%s" rx="4"/>`, short(p.x), short(p.y), short(p.width), short(p.height))
	p.text(p.x+12, p.y+21, "title", "start", p.Title)
	p.left, p.right, p.top, p.bottom = p.x+62, p.x+p.width-14, p.y+above, p.y+p.height-below
	var lines []series
	if p.Type == "state-timeline" {
		p.left += 40
	} else {
		lines = p.lines()
		p.bottom -= p.legend(lines)
	}
	for _, e := range p.story.events {
		p.mark(e, p.at(e.from), p.at(e.to), p.top, p.bottom)
	}
	for at := time.Minute; at <= p.story.ended.Sub(p.story.began); at += time.Minute {
		p.text(p.at(p.story.began.Add(at)), p.bottom+15, "", "middle", fmt.Sprintf("%.0f min", at.Minutes()))
	}
	if p.Type == "state-timeline" {
		p.states()
	} else {
		p.curves(lines)
	}
}

// at is where a time is.
func (p *plot) at(t time.Time) float64 {
	return p.left + (p.right-p.left)*t.Sub(p.story.began).Seconds()/p.story.ended.Sub(p.story.began).Seconds()
}

// pointAt is where the point of a number is.
func (p *plot) pointAt(i int) float64 {
	return p.at(p.story.began.Add(time.Duration(i) * scrape))
}

// lines are the series that are not 0 all the time, if there are such, with a colour each. Stacked
// ones lie on those below them, and have a gap where they are 0.
func (p *plot) lines() (lines []series) {
	stacked := p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	var under []float64
	for i, s := range p.series {
		if s.colour == "" {
			s.colour = palette[i%len(palette)]
		}
		if under == nil {
			under = make([]float64, len(s.values))
		}
		some := false
		values := make([]float64, len(s.values))
		for n, v := range s.values {
			some = some || v > 0
			values[n] = v
			if stacked {
				values[n] = math.NaN()
				if v > 0 {
					under[n] += v
					values[n] = under[n]
				}
			}
		}
		if s.values = values; some {
			lines = append(lines, s)
		}
	}
	if lines == nil {
		lines = p.series
	}
	return lines
}

// legend names the lines at the bottom, and returns its height.
func (p *plot) legend(lines []series) float64 {
	var rows [][]series
	x := p.right
	for _, s := range lines {
		if x += widthOf(s.name) + 32; x > p.right {
			x, rows = p.x+12+widthOf(s.name)+32, append(rows, nil)
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], s)
	}
	for i, row := range rows {
		x, y := p.x+12, p.y+p.height-11-legendLine*float64(len(rows)-1-i)
		for _, s := range row {
			p.add(`<rect class="full %s" x="%s" y="%s" width="10" height="3"/>`, s.colour, short(x), short(y-5.5))
			p.text(x+15, y, "", "start", s.name)
			x += widthOf(s.name) + 32
		}
	}
	return legendLine * float64(len(rows))
}

// curves draws the axis of the values, and the lines.
func (p *plot) curves(lines []series) {
	unit, axis := p.FieldConfig.Defaults.Unit, axisOf(p.FieldConfig.Defaults.Unit, p.logarithmic, lines)
	y := func(v float64) float64 { return p.bottom - (p.bottom-p.top)*axis.share(v) }
	for _, tick := range axis.ticks {
		p.add(`<path class="grid" d="M%s %sH%s"/>`, short(p.left), short(y(tick)), short(p.right))
		p.text(p.left-7, y(tick)+4, "", "end", amount(unit, tick))
	}
	for i := len(lines) - 1; i >= 0; i-- { // the first is on top
		s := lines[i]
		if p.FieldConfig.Defaults.Custom.FillOpacity > 0 {
			p.add(`<path class="area %s" d="%s"/>`, s.colour, p.path(s.values, y, p.bottom))
		}
		p.add(`<path class="line %s" d="%s"/>`, s.colour, p.path(s.values, y))
	}
}

// path joins points by lines, with gaps where there are none. With a floor it encloses the surface
// down to it. A point between two others on one line is left out.
func (p *plot) path(values []float64, y func(float64) float64, floor ...float64) string {
	type point struct{ x, y int } // in tenths
	tenths := func(v float64) int { return int(math.Round(10 * v)) }
	var b strings.Builder
	var run []point
	end := func() {
		if len(floor) > 0 && len(run) > 0 {
			f := tenths(floor[0])
			run = append(append([]point{{run[0].x, f}}, run...), point{run[len(run)-1].x, f})
		}
		for i, at := range run {
			fmt.Fprintf(&b, "%c%s %s", "ML"[min(i, 1)], short(float64(at.x)/10), short(float64(at.y)/10))
		}
		run = nil
	}
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			end()
			continue
		}
		at := point{tenths(p.pointAt(i)), tenths(y(v))}
		if n := len(run); n > 1 && run[n-1].y == at.y && run[n-2].y == at.y {
			run[n-1] = at
			continue
		}
		run = append(run, at)
	}
	end()
	return b.String()
}

// states draws a state-timeline: a row for each series, and a bar for as long as it had one value.
func (p *plot) states() {
	for row, s := range p.series {
		y := p.top + stateRow*float64(row)
		p.text(p.left-7, y+17, "", "end", s.name)
		for i := 0; i < len(s.values); {
			next := i + 1
			for next < len(s.values) && s.values[next] == s.values[i] {
				next++
			}
			if !math.IsNaN(s.values[i]) {
				words, colour := p.word(s.values[i])
				from, to := p.pointAt(i), p.pointAt(min(next, len(s.values)-1))
				p.add(`<rect class="full %s" x="%s" y="%s" width="%s" height="%s" rx="2"/>`,
					strings.TrimPrefix(colour, "dark-"), short(from), short(y+3), short(to-from), short(stateRow-6))
				if to-from > widthOf(words)+10 {
					p.text(from+6, y+17, "word", "start", words)
				}
			}
			i = next
		}
	}
}
