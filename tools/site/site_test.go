package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

var headingName = regexp.MustCompile(` \{#[^}\n]*\}\n`)

const (
	someConfig = "site_name: relay {version}\nsite_url: https://host/relay/\n\nnav:\n" +
		"  - README.md\n  - Go live:\n      - docs/Old.md\n      - Named: docs/new/README.md\n"
	someChangelog = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n## [0.1.0] - 2026-11-30\n"
)

// tree makes files in a new folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		await.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		await.Must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	return root
}

// Links between pages stay; those to other files lead to the repository, at the version's tag.
func TestStage(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"README.md": "[k](docs/Old.md#a) ![p\nq](docs/p.png) [`x`](LICENSE) [d](deploy) [own](#a) [w](https://w.example/)\n" +
			"```md\n[not](nowhere)\n```\n[![n](docs/p.png)](docs/new/README.md)\n",
		"docs/Old.md": "[r](../README.md) [s](../main.go#L3)\n", "docs/new/README.md": "[k](../Old.md)\n",
		"docs/p.png": "picture", "LICENSE": "", "main.go": "", "deploy/x": "", "tools/site/theme/main.html": "theme", "tools/site/theme/site.css": "style",
	})
	s, err := newStage(root, t.TempDir(), someConfig, someChangelog)
	await.Must(t, err)
	await.Must(t, s.write())
	for name, want := range map[string]string{
		"mkdocs.yml":      strings.ReplaceAll(someConfig, "{version}", "0.2.0"),
		"theme/main.html": "theme", "pages/site.css": "style", "pages/docs/p.png": "picture",
		"pages/README.md": "[k](docs/Old.md#a) ![p\nq](docs/p.png) [`x`](" + repository + "/blob/v0.2.0/LICENSE) [d](" + repository +
			"/tree/v0.2.0/deploy) [own](#a) [w](https://w.example/)\n```md\n[not](nowhere)\n```\n[![n](docs/p.png)](docs/new/README.md)\n",
		"pages/docs/Old.md":        "[r](../README.md) [s](" + repository + "/blob/v0.2.0/main.go#L3)\n",
		"pages/docs/new/README.md": "[k](../Old.md)\n",
	} {
		got, err := os.ReadFile(filepath.Join(s.folder, name))
		await.Must(t, err)
		if string(got) != want {
			t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
		}
	}
}

// What cannot be staged is named.
func TestStageRefuses(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]struct{ config, changelog, page, says string }{
		"dead link":  {someConfig, someChangelog, "[a](b.md)", "README.md links to b.md: there is no such file"},
		"no page":    {"site_url: https://host/relay/\nnav:\n", someChangelog, "", "lists no page"},
		"no address": {strings.Replace(someConfig, "site_url", "x", 1), someChangelog, "", "no site_url"},
		"no version": {someConfig, "# Changelog\n\n## [Unreleased]\n", "", "no release"},
		"page gone":  {someConfig + "  - gone.md\n", someChangelog, "", "gone.md"},
	} {
		root := tree(t, map[string]string{"README.md": part.page, "docs/Old.md": "", "docs/new/README.md": "", "tools/site/theme/main.html": "", "tools/site/theme/site.css": ""})
		s, err := newStage(root, t.TempDir(), part.config, part.changelog)
		if err == nil {
			err = s.write()
		}
		if err == nil || !strings.Contains(err.Error(), part.says) {
			t.Errorf("%s: %v, want %q", name, err, part.says)
		}
	}
}

// The pages of the repository can be staged: each link leads to a file.
func TestStageOfThisRepository(t *testing.T) {
	t.Parallel()
	s, err := newStage(pages.Root(), t.TempDir(), pages.Text(t, "tools/site/mkdocs.yml"), pages.Text(t, "CHANGELOG.md"))
	await.Must(t, err)
	await.Must(t, s.write())
	if len(s.pages) < 30 {
		t.Errorf("only %d pages are on the site", len(s.pages))
	}
}

// Each fault of a built site is found.
func TestCheck(t *testing.T) {
	t.Parallel()
	const head = `<meta http-equiv="Content-Security-Policy" content="default-src 'self'; img-src 'self' data:">`
	whole := map[string]string{
		"index.html": `<html><head>` + head + `<link rel="canonical" href="https://host/relay/"><link rel="stylesheet" href="a/s.css"></head>` +
			`<body><h1 id="top">T</h1><a href="docs/Old/#a">k</a> <a href="#top">t</a> <a href="https://x.example/">x</a>` +
			`<pre><code>- [not](a link) **</code></pre><img src="a/p.png"><img src="data:x"></body></html>`,
		"docs/Old/index.html":     head + `<h2 id="a">A</h2><a href="../..">up</a><a href="../new/">n</a><a href="../../a/p.png">p</a>`,
		"docs/new/index.html":     head,
		"404.html":                head + `<a href="/relay/docs/Old/#a">k</a><script src="/relay/a/j.js"></script>`,
		"a/s.css":                 `@import "t.css"; a { background: url(p.png) } b { background: url("data:image/svg+xml;x") }`,
		"a/t.css":                 "",
		"a/p.png":                 "",
		"a/j.js":                  "",
		"docs/Old/unused.invalid": "",
	}
	check := func(part, name, text string) string {
		files := map[string]string{}
		for file, content := range whole {
			files[file] = content
		}
		files[name] += text
		built, err := readSite(tree(t, files), "https://host/relay/")
		await.Must(t, err)
		if err := built.check([]string{"README.md", "docs/Old.md", "docs/new/README.md", part}); err != nil {
			return err.Error()
		}
		return ""
	}
	if fault := check("README.md", "a/t.css", ""); fault != "" {
		t.Fatal(fault)
	}
	if fault := check("gone.md", "a/t.css", ""); fault != "gone.md is not on the site" {
		t.Error(fault)
	}
	for _, part := range []struct{ name, text, says string }{
		{"index.html", `<a href="docs/gone/">x</a>`, "index.html links to docs/gone/: there is no such file"},
		{"index.html", `<a href="docs/Old/#b">x</a>`, "index.html links to docs/Old/#b: there is no such heading"},
		{"index.html", `<a href="/docs/Old/">x</a>`, "index.html links to /docs/Old/: there is no such file"},
		{"index.html", `<a href="#b">x</a>`, "index.html links to #b: there is no such heading"},
		{"index.html", `<img src="b.png">`, "index.html loads b.png: there is no such file"},
		{"index.html", `<img srcset="a/p.png 1x, https://x.example/p.png 2x">`, "index.html loads https://x.example/p.png from another host"},
		{"index.html", `<script src="//x.example/j.js"></script>`, "index.html loads //x.example/j.js from another host"},
		{"index.html", `<link rel="preconnect" href="https://x.example">`, "index.html loads https://x.example from another host"},
		{"index.html", `<style>a { src: url('http://x.example/f') }</style>`, "index.html loads http://x.example/f from another host"},
		{"index.html", `<i style="background: url(http://x.example/f)">i</i>`, "index.html loads http://x.example/f from another host"},
		{"a/t.css", `@import url(//x.example/s.css)`, "a/t.css loads //x.example/s.css from another host"},
		{"docs/new/x.html", `<p>x</p>`, "docs/new/x.html lets the browser load from other hosts"},
		{"index.html", "<p>x\n- y</p>", `index.html has Markdown in its text: "- y"`},
		{"index.html", "<p>[x](y)</p>", `index.html has Markdown in its text: "]("`},
	} {
		if fault := check("README.md", part.name, part.text); fault != part.says {
			t.Errorf("with %q in %s: %q, want %q", part.text, part.name, fault, part.says)
		}
	}
}
