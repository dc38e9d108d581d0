package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// words are the texts of a picture, with their places.
type words struct {
	X      float64 `xml:"x,attr"`
	Y      float64 `xml:"y,attr"`
	Class  string  `xml:"class,attr"`
	Anchor string  `xml:"text-anchor,attr"`
	Text   string  `xml:",chardata"`
}

func (w words) ends() (left, right float64) {
	width := widthOf(w.Text) * 0.8 // it estimates for the widest of fonts
	if strings.HasPrefix(w.Class, "mono") {
		width = cellWidth * float64(utf8.RuneCountInString(w.Text))
	}
	left = w.X - map[string]float64{"middle": 0.5, "end": 1}[w.Anchor]*width
	return left, left + width
}

// committed is a picture of docs/img.
func committed(t *testing.T, file string) (svg string, all []words) {
	t.Helper()
	svg = pages.Text(t, folder+"/"+file)
	var decoded struct {
		Texts  []words `xml:"text"`
		Screen []words `xml:"g>text"`
	}
	if err := xml.Unmarshal([]byte(svg), &decoded); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return svg, append(decoded.Texts, decoded.Screen...)
}

// Each panel of a picture is one of the dashboards in deploy/grafana, by its title.
func TestPanelsExist(t *testing.T) {
	for _, p := range pictures {
		_, all := committed(t, p.file)
		for _, s := range p.panels {
			if _, err := find(pages.Root(), s); err != nil {
				t.Errorf("%s: %v", p.file, err)
			}
			if !slices.ContainsFunc(all, func(w words) bool { return w.Class == "title" && w.Text == s.title }) {
				t.Errorf("%s does not show %q: make pictures", p.file, s.title)
			}
		}
	}
	// a number, and one that is not there
	for title, board := range map[string]string{"Behind": reliability, "Bytes": slots} {
		if _, err := find(pages.Root(), shown{board: board, title: title}); err == nil {
			t.Errorf("%s has %q over time", board, title)
		}
	}
}

// Each file of docs/img is one that make pictures writes, is small, and is on a page that says in
// words what one sees.
func TestPicturesAreShown(t *testing.T) {
	want := []string{watchFile}
	for _, p := range pictures {
		want = append(want, p.file)
	}
	slices.Sort(want)
	entries, err := os.ReadDir(filepath.Join(pages.Root(), folder))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".svg" { // test/console draws others
			got = append(got, entry.Name())
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has %q, want %q", folder, got, want)
	}
	var shown strings.Builder
	for _, page := range pages.All(t) {
		shown.WriteString(pages.Text(t, page))
	}
	for _, file := range want {
		if svg, _ := committed(t, file); len(svg) > 60_000 {
			t.Errorf("%s has %d bytes", file, len(svg))
		}
		if !regexp.MustCompile(`!\[[^]]{40,}\]\([a-z/]*img/` + regexp.QuoteMeta(file) + `\)`).MatchString(shown.String()) {
			t.Errorf("no page shows %s with words for those who do not see it", file)
		}
	}
}

// No text covers another one, or leaves the picture.
func TestNothingOverlaps(t *testing.T) {
	files := []string{watchFile}
	for _, p := range pictures {
		files = append(files, p.file)
	}
	for _, file := range files {
		svg, all := committed(t, file)
		var full, height float64
		if _, err := fmt.Sscanf(svg[strings.Index(svg, "viewBox"):], `viewBox="0 0 %f %f"`, &full, &height); err != nil {
			t.Fatal(err)
		}
		for i, a := range all {
			left, right := a.ends()
			if left < 0 || right > full || a.Y < 10 || a.Y > height {
				t.Errorf("%s: %q is outside", file, a.Text)
			}
			for _, b := range all[:i] {
				if l, r := b.ends(); math.Abs(a.Y-b.Y) < 11 && left < r-1 && l < right-1 {
					t.Errorf("%s: %q covers %q", file, a.Text, b.Text)
				}
			}
		}
	}
}

func TestAxis(t *testing.T) {
	for _, c := range []struct {
		unit        string
		values      []float64
		logarithmic bool
		want        string
	}{
		{"eps", []float64{0, 310}, false, "0 100/s 200/s 300/s 400/s"},
		{"s", []float64{0.7, math.NaN()}, false, "0 200 ms 400 ms 600 ms 800 ms"},
		{"s", []float64{121}, false, "0 1 min 2 min 3 min"},
		{"s", []float64{0.004, 130}, true, "1 ms 10 ms 100 ms 1 s 10 s 100 s 1000 s"},
		{"bytes", []float64{130 << 20}, false, "0 64 MiB 128 MiB 192 MiB"},
		{"short", []float64{1}, false, "0 1"},
		{"short", []float64{0}, false, "0 1"},
		{"short", []float64{36_400}, false, "0 10k 20k 30k 40k"},
	} {
		var got []string
		a := axisOf(c.unit, c.logarithmic, []series{{values: c.values}})
		for _, tick := range a.ticks {
			got = append(got, amount(c.unit, tick))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s up to %v has the ticks %s, want %s", c.unit, c.values, text, c.want)
		}
		if low, high := a.share(a.ticks[0]), a.share(a.ticks[len(a.ticks)-1]); low != 0 || high != 1 {
			t.Errorf("%s: the ends are at %v and %v", c.unit, low, high)
		}
	}
}

// A frame has its colours, each text where its column is.
func TestTerminal(t *testing.T) {
	svg := terminalSVG("status", "state      \x1b[1;31mbroker down\x1b[0m: <refused>\x1b[K\r\n")
	for _, want := range []string{
		`<text class="mono bold full red" x="104.7" y="49" textLength="92.7">broker down</text>`,
		`<text class="mono" x="197.5" y="49" textLength="92.7">: &lt;refused&gt;</text>`,
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg[strings.Index(svg, "<text"):])
		}
	}
}
