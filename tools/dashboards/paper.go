package main

import (
	"fmt"
	"image/color"
	"os"
	"time"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// This file is the paper: colours, letters, and the frames in which panels are drawn.

const (
	column = 47 * vg.Length(1) // points
	line   = 23 * vg.Length(1)
	gap    = 4 * vg.Length(1)
	head   = 56 * vg.Length(1)
)

var colours = map[string]color.Color{
	"green": hex(0x56A64B), "orange": hex(0xFF780A), "red": hex(0xE02F44), "purple": hex(0xA352CC), "yellow": hex(0xE0B400), "blue": hex(0x3274D9),
	"dark-red": hex(0xC4162A), "dark-green": hex(0x37872D), "text": hex(0x24292E), "grey": hex(0x6E7780), "light": hex(0xDDE1E5), "paper": hex(0xF4F5F5), "white": hex(0xFFFFFF),
}

// classic are the colours of series that have none of their own.
var classic = []color.Color{
	hex(0x56A64B), hex(0xF2B705), hex(0x3274D9), hex(0xFF780A), hex(0xE02F44), hex(0x1F9E9E), hex(0xA352CC), hex(0x806EB7),
	hex(0x508642), hex(0x967302), hex(0x2F575E), hex(0x99440A), hex(0x8AB8FF), hex(0xFFA6B0), hex(0x6D1F62),
}

func hex(rgb uint32) color.Color {
	return color.NRGBA{R: uint8(rgb >> 16), G: uint8(rgb >> 8), B: uint8(rgb), A: 255}
}

func faint(c color.Color, opacity uint8) color.Color {
	n := color.NRGBAModel.Convert(c).(color.NRGBA)
	n.A = opacity
	return n
}

var letters = text.Plain{Fonts: font.NewCache(liberation.Collection())}

func letter(size vg.Length, bold bool, c color.Color) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = 3 // bold, of x/image/font
	}
	return text.Style{Color: c, Font: f, Handler: letters}
}

// say writes text; x and y are the place of its left end on the base line. Each letter by itself: the font's kerning puts two ones
// upon each other.
func say(c draw.Canvas, s text.Style, x, y vg.Length, words string) {
	for _, one := range words {
		c.FillText(s, vg.Point{X: x, Y: y}, string(one))
		x += s.Width(string(one))
	}
}

// long is how wide text is as say writes it.
func long(s text.Style, words string) (sum vg.Length) {
	for _, one := range words {
		sum += s.Width(string(one))
	}
	return sum
}

// clip shortens words until they fit.
func clip(s text.Style, words string, most vg.Length) string {
	for runes := []rune(words); long(s, words) > most && len(runes) > 1; words = string(runes) + "…" {
		runes = runes[:len(runes)-1]
	}
	return words
}

func fill(c draw.Canvas, colour color.Color, x1, y1, x2, y2 vg.Length) {
	c.FillPolygon(colour, []vg.Point{{X: x1, Y: y1}, {X: x2, Y: y1}, {X: x2, Y: y2}, {X: x1, Y: y2}})
}

// painter draws one panel in its frame.
type painter struct {
	draw.Canvas
	p          *panel
	answers    []answer
	start, end time.Time
}

func drawBoard(b *board, brought map[int][]answer, start, end int64) *vgimg.Canvas {
	rows := 0
	for _, p := range b.Panels {
		rows = max(rows, p.GridPos.Y+p.GridPos.H)
	}
	width, height := 24*column+2*gap, vg.Length(rows)*line+head+2*gap
	img := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(96), vgimg.UseBackgroundColor(colours["paper"]))
	page := draw.New(img)
	from, to := time.UnixMilli(start), time.UnixMilli(end)
	say(page, letter(19, true, colours["text"]), 12, height-26, b.Title)
	say(page, letter(9.5, false, colours["grey"]), 12, height-43, fmt.Sprintf(
		"%s   Not a screenshot: drawn by tools/dashboards from the answers of Prometheus to the dashboard's queries, %s, %s to %s UTC.",
		b.Description, from.UTC().Format("2 January 2006"), hour(from), hour(to)))
	for i := range b.Panels {
		p := &b.Panels[i]
		g := p.GridPos
		x, top := gap+vg.Length(g.X)*column, height-head-vg.Length(g.Y)*line
		frame := vg.Rectangle{Min: vg.Point{X: x + gap/2, Y: top - vg.Length(g.H)*line + gap/2}, Max: vg.Point{X: x + vg.Length(g.W)*column - gap/2, Y: top - gap/2}}
		if p.Type == "row" {
			say(page, letter(12, true, colours["text"]), frame.Min.X+4, frame.Min.Y+5, p.Title)
			continue
		}
		(&painter{draw.Canvas{Canvas: img, Rectangle: frame}, p, brought[p.ID], from, to}).panel()
	}
	return img
}

// panel draws frame and title, then what is in it.
func (d *painter) panel() {
	fill(d.Canvas, colours["white"], d.Min.X, d.Min.Y, d.Max.X, d.Max.Y)
	title := letter(9.5, true, colours["text"])
	content := *d
	content.Max.Y -= 20
	content.Min.X, content.Min.Y, content.Max.X = d.Min.X+6, d.Min.Y+5, d.Max.X-6
	switch d.p.Type {
	case "stat":
		content.Min.X, content.Min.Y, content.Max.X = d.Min.X, d.Min.Y, d.Max.X
		content.stat()
	case "timeseries":
		content.timeseries()
	case "heatmap":
		content.heatmap()
	case "table":
		content.table()
	case "state-timeline":
		content.timeline()
	}
	say(d.Canvas, title, d.Min.X+7, d.Max.Y-14, clip(title, d.p.Title, d.Max.X-d.Min.X-12))
	frame := draw.LineStyle{Color: colours["light"], Width: 0.7}
	d.StrokeLines(frame, []vg.Point{d.Min, {X: d.Max.X, Y: d.Min.Y}, d.Max, {X: d.Min.X, Y: d.Max.Y}, d.Min})
}

func save(img *vgimg.Canvas, file string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(out); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return out.Close()
}
