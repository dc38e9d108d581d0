//go:build nightly

package console

import "testing"

// A page that is opened again is painted from few bytes of the relay alone. How soon is logged.
func TestFirstPaint(t *testing.T) {
	s := newShop(t, largest)
	browser := chromium(t)
	look(browser, t, s.relay.Admin()) // the relay packs its files at the first look
	p := look(browser, t, s.relay.Admin())
	p.open(mayChange)
	p.until(`document.querySelectorAll('.chart canvas').length === 6`)
	t.Log(value[string](p, `'first paint after ' + Math.round(performance.getEntriesByName('first-contentful-paint')[0].startTime) + ' ms'`))
	files := `performance.getEntriesByType('resource').filter((e) => !e.name.includes('/api/'))`
	if n := value[int](p, files+`.length`); n < 10 || n > 20 {
		t.Errorf("%d files are loaded", n)
	}
	if size := value[int](p, `performance.getEntriesByType('navigation').concat(`+files+`).reduce((sum, e) => sum + e.encodedBodySize, 0)`); size < 20_000 || size > 100_000 {
		t.Errorf("%d bytes are loaded", size)
	}
}
