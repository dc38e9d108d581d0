//go:build nightly

package console

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

var rewrite = flag.Bool("rewrite", false, "write docs/img/console-*.png again")

// mostBytes is how large a picture of docs/img may be.
const mostBytes = 150_000

// looks are how a screen is looked at.
var looks = []struct {
	name, scheme  string
	width, height int64
}{
	{"light", "light", 1280, 860},
	{"dark", "dark", 1280, 860},
	{"narrow", "light", 390, 844},
}

// Each screen is drawn light, dark and narrow, for those who look at the pages, and for whoever
// changes the console. With -args -rewrite they are written to docs/img.
func TestPictures(t *testing.T) {
	s := newShop(t, 2<<10)
	s.order(400)
	s.deadLetters(9)
	for i := range 25 {
		s.insert(fmt.Sprintf("0198c7a2-%04d", i), "lost", fmt.Sprintf("customer-%d", i%6), []string{"shipped", "returned"}[i%5/4], []byte(`{"order": "4711", "carrier": "north"}`))
	}
	s.becomes(25, "SELECT count(*) FROM cdc_relay.retry")
	s.start(strings.Replace(s.config, "relay-0", "relay-1", 1))
	stop := s.load()
	p := look(chromium(t), t, s.relay.Admin())
	p.open(mayChange)
	p.until(`document.querySelectorAll('.chart canvas').length === 6`)
	p.until(fmt.Sprintf(`fetch('../api/v1/history', {headers: {Authorization: 'Bearer %s'}}).then((r) => r.json()).then((h) => h.points.at.length >= %d)`, mayRead, points()))
	to := t.TempDir()
	if *rewrite {
		to = filepath.Join(pages.Root(), "docs/img")
	}
	for _, screen := range []struct{ name, hash string }{
		{"flow", "#/flow"},
		{"stuck", "#/stuck"},
		{"dead-letters", "#/dead-letters?state=open"},
		{"dead-letter", "#/dead-letters/3"},
		{"find", "#/find?q=customer-3"},
		{"safety", "#/safety"},
	} {
		for _, l := range looks {
			p.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}}),
				emulation.SetDeviceMetricsOverride(l.width, l.height, 1, false))
			p.screen(screen.hash)
			if screen.name == "safety" {
				p.says("https://relay-1.internal:8464")
			}
			p.accessible(screen.name + " " + l.name)
			if wide := value[int64](p, `document.documentElement.scrollWidth`); wide > l.width {
				t.Errorf("%s %s is %d wide", screen.name, l.name, wide)
			}
			var shot []byte
			p.run(chromedp.Evaluate(`document.activeElement.blur()`, nil), chromedp.CaptureScreenshot(&shot))
			small := quantised(t, shot)
			if len(small) > mostBytes {
				t.Errorf("%s %s has %d bytes", screen.name, l.name, len(small))
			}
			await.Must(t, os.WriteFile(filepath.Join(to, fmt.Sprintf("console-%s-%s.png", screen.name, l.name)), small, 0o644))
		}
	}
	// the smallest and the largest screen, with a dialog
	for _, width := range []int64{360, 3840} {
		p.run(emulation.SetDeviceMetricsOverride(width, 1000, 1, false))
		for _, hash := range []string{"#/flow", "#/stuck", "#/dead-letters?state=open", "#/deferred?group=type", "#/find?q=customer-3", "#/safety", "#/dead-letters/3"} {
			p.screen(hash)
			if wide := value[int64](p, `document.documentElement.scrollWidth`); wide > width {
				t.Errorf("%s is %d wide on a screen of %d", hash, wide, width)
			}
		}
		p.press("Discard…")
		p.until(fmt.Sprintf(`(({left, right, bottom}) => left >= 0 && right <= %d && bottom <= 1000)(document.querySelector('dialog[open]').getBoundingClientRect())`, width))
		p.press("Cancel")
	}
	stop()
}

// points is how many the charts need to show something.
func points() int {
	if *rewrite {
		return 13
	}
	return 2
}

// load commits orders until the returned function is called.
func (s *shop) load() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for n := 1; ctx.Err() == nil; n++ {
			s.order(3 + n/50%5)
			<-tick.C
		}
	}()
	return func() { cancel(); <-ended }
}

// quantised is a picture with at most 256 colours: those that are there most often.
func quantised(t *testing.T, shot []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(shot))
	await.Must(t, err)
	counts := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA {
		c := color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)
		return color.RGBA{c.R &^ 3, c.G &^ 3, c.B &^ 3, 255}
	}
	b := full.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	colours := make([]color.RGBA, 0, len(counts))
	for c := range counts {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.RGBA) int {
		return cmp.Or(counts[b]-counts[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	if len(colours) < 10 {
		t.Fatalf("the picture has %d colours: nothing is drawn", len(colours))
	}
	palette := color.Palette{}
	for _, c := range colours[:min(256, len(colours))] {
		palette = append(palette, c)
	}
	index := map[color.RGBA]uint8{}
	small := image.NewPaletted(b, palette)
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			c := at(x, y)
			i, known := index[c]
			if !known {
				i = uint8(palette.Index(c))
				index[c] = i
			}
			small.SetColorIndex(x, y, i)
		}
	}
	var out bytes.Buffer
	await.Must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small))
	return out.Bytes()
}
