//go:build nightly

package console

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// The documentation site, which is the same bytes each time, in a browser: the search works, each
// page fits a phone, and no page asks another host. The last is what every tab here checks.
func TestDocumentationSite(t *testing.T) {
	folder, again := buildSite(t), buildSite(t)
	if files, others := filesOf(t, folder), filesOf(t, again); len(files) < 50 || len(files) != len(others) {
		t.Errorf("the site has %d files, and %d when it is made again", len(files), len(others))
	} else {
		for name, text := range files {
			if others[name] != text {
				t.Errorf("%s has other bytes when the site is made again", name)
			}
		}
	}

	const base = "/cdc-relay"
	server := httptest.NewServer(http.StripPrefix(base, http.FileServer(http.Dir(folder))))
	t.Cleanup(server.Close)
	p := look(chromium(t), t, server.URL+base)

	p.step("the search leads to a heading", func() {
		const shadow = `[...document.body.children].find((e) => e.shadowRoot)?.shadowRoot`
		p.until(`document.querySelector('.md-search__button')`)
		p.run(chromedp.Evaluate(`document.querySelector('.md-search__button').click()`, nil))
		p.until(`(() => { const e = ` + shadow + `?.querySelector('input'); e?.focus(); return Boolean(e) })()`)
		p.run(chromedp.KeyEvent("dead letters replay discard"))
		const found = shadow + `?.querySelector('a[href*="/docs/dead-letters/"]')`
		p.until(found)
		p.run(chromedp.Navigate(value[string](p, found+`.href`)))
		p.says("Replay or discard")
	})

	p.step("the colours are the reader's", func() {
		for scheme, dark := range map[string]bool{"light": false, "dark": true} {
			p.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
				chromedp.Navigate(server.URL+base+"/docs/kafka/"))
			p.until(`document.body.dataset.mdColorScheme === ` + quote(map[bool]string{true: "slate", false: "default"}[dark]))
			if got := value[bool](p, `getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).every((c) => c < 128)`); got != dark {
				t.Errorf("with %s colours the page is dark: %v", scheme, got)
			}
			p.run(chromedp.Evaluate(axe(t), nil)) // what else it finds is the theme's
			for _, node := range value[[]string](p, `axe.run(document, {runOnly: ['color-contrast']}).then((r) => r.violations.flatMap((v) => v.nodes.map((n) => n.html)))`) {
				t.Errorf("with %s colours this cannot be read by all: %s", scheme, node)
			}
		}
	})

	p.step("each page fits a phone", func() {
		p.run(emulation.SetDeviceMetricsOverride(360, 780, 1, true))
		found := regexp.MustCompile(`<loc>[^<]*`+base+`/([^<]*)</loc>`).FindAllStringSubmatch(filesOf(t, folder)["sitemap.xml"], -1)
		if len(found) < 30 {
			t.Fatalf("only %d pages are on the site", len(found))
		}
		for _, page := range found {
			p.run(chromedp.Navigate(server.URL + base + "/" + page[1]))
			p.until(`document.querySelector('main h1')`)
			if width := value[int](p, `document.documentElement.scrollWidth`); width > 360 {
				t.Errorf("/%s is %d pixels wide", page[1], width)
			}
		}
	})
}

// buildSite makes the site of this checkout in a new folder.
func buildSite(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "site")
	out, err := exec.CommandContext(t.Context(), filepath.Join(pages.Root(), "scripts/site.sh"), folder).CombinedOutput()
	if err != nil {
		t.Fatalf("scripts/site.sh: %v\n%s", err, out)
	}
	return folder
}

// filesOf are the texts of all files in a folder, by their paths from there.
func filesOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	await.Must(t, fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(folder, path))
		files[path] = string(text)
		return err
	}))
	return files
}
