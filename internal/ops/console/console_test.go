package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// each calls do for every file of the page: ours, or those of others in lib.
func each(t *testing.T, do func(name, text string, ours bool)) {
	t.Helper()
	count := 0
	err := fs.WalkDir(embedded, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(embedded, name)
		count++
		do(strings.TrimPrefix(name, "static/"), string(text), !strings.HasPrefix(name, "static/lib/"))
		return err
	})
	if err != nil || count < 15 {
		t.Fatalf("%d files, %v", count, err)
	}
}

func get(t *testing.T, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

// Each answer, also a redirect and one that is not there, forbids what the page does not need.
func TestHeaders(t *testing.T) {
	targets := []string{"/", "/console", "/console/", "/console/none", "/none"}
	each(t, func(name, _ string, _ bool) { targets = append(targets, "/console/"+name) })
	want := map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         "no-referrer",
		"Cache-Control":           "no-cache",
	}
	for _, target := range targets {
		answer := get(t, target)
		for name, value := range want {
			if got := answer.Header.Get(name); got != value {
				if answer.StatusCode == http.StatusNotFound && name == "Cache-Control" {
					continue // net/http drops it from an error
				}
				t.Errorf("%s: %s is %q, want %q", target, name, got, value)
			}
		}
		switch {
		case strings.HasSuffix(target, "none"):
			if answer.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %d", target, answer.StatusCode)
			}
		case target == "/" || target == "/console":
			if answer.StatusCode != http.StatusFound || answer.Header.Get("Location") != "console/" {
				t.Errorf("%s: %d %q", target, answer.StatusCode, answer.Header.Get("Location"))
			}
		case answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") == "":
			t.Errorf("%s: %d, %q", target, answer.StatusCode, answer.Header.Get("Content-Type"))
		}
	}
}

// A file comes packed to who takes that, plain to others, and not at all to who has it.
func TestPackedAndKept(t *testing.T) {
	each(t, func(name, text string, _ bool) {
		plain, packed := get(t, "/console/"+name), get(t, "/console/"+name, "Accept-Encoding", "br, gzip")
		if body, err := io.ReadAll(plain.Body); err != nil || string(body) != text || plain.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s is not plain: %v", name, err)
		}
		r, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if body, err := io.ReadAll(r); err != nil || string(body) != text || packed.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s is not packed: %v", name, err)
		}
		if plain.Header.Get("ETag") == packed.Header.Get("ETag") || plain.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: a cache cannot tell packed from plain", name)
		}
		again := get(t, "/console/"+name, "If-None-Match", plain.Header.Get("ETag"))
		if body, err := io.ReadAll(again.Body); again.StatusCode != http.StatusNotModified || len(body) > 0 || err != nil {
			t.Errorf("%s is sent again: %d", name, again.StatusCode)
		}
	})
}

// The files of others are those that NOTICE names, with their hashes, and their licences are there.
func TestFilesOfOthers(t *testing.T) {
	notice, err := fs.ReadFile(embedded, "static/lib/NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(name, text string, ours bool) {
		if ours || path.Ext(name) == "" {
			return
		}
		line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(path.Base(name)) + ` .* \d+\.\d+\.\d+.* sha256 ([0-9a-f]{64})$`).FindStringSubmatch(string(notice))
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); line == nil || line[1] != sum {
			t.Errorf("NOTICE does not name %s with a version and sha256 %s", name, sum)
		}
	})
	for _, licence := range []string{"htm", "preact", "uplot"} {
		text, err := fs.ReadFile(embedded, "static/lib/LICENSE-"+licence)
		if err != nil || !bytes.Contains(text, []byte("Copyright")) {
			t.Errorf("the licence of %s: %v", licence, err)
		}
	}
}

// All that is loaded is from the relay itself: no file names another host.
func TestNamesNoOtherHost(t *testing.T) {
	host := regexp.MustCompile(`(?:https?|wss?|ftp):/{2}[^\s"'` + "`" + `)<]*|(?:src|href|url|import|from)\s*[=(]?\s*["'(]//[^\s]*`)
	named := map[string]bool{"http://www.w3.org/2000/svg": true} // a name, not an address
	each(t, func(name, text string, _ bool) {
		if strings.HasPrefix(name, "lib/LICENSE") {
			return
		}
		if name == "lib/uplot.js" {
			text = strings.TrimPrefix(text, "/*! https://github.com/leeoniya/uPlot (v1.6.32) */")
		}
		for _, found := range host.FindAllString(text, -1) {
			if !named[found] {
				t.Errorf("%s: %s", name, found)
			}
		}
	})
}

// Nothing of ours makes markup or code of a text: an event's payload may be both.
func TestMakesNoMarkupOfText(t *testing.T) {
	sink := regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacent|document\.write|srcdoc|DOMParser|createContextualFragment|\beval\b|new Function|javascript:|setTimeout\(["'` + "`" + `]|\bstyle=|\bon[a-z]+="|<script>|<style|localStorage|sessionStorage|document\.cookie`)
	each(t, func(name, text string, ours bool) {
		if ours {
			for _, found := range sink.FindAllString(text, -1) {
				t.Errorf("%s has %q", name, found)
			}
		}
	})
}

// The console stays small enough to be read, and to be there at once. Lines of code are counted, of
// Go, JavaScript, HTML and CSS: those that are neither empty nor only a comment, of the page and of
// the files that are there for it. It has about 200 more in files that it shares with others, such
// as a key of the configuration or a field of the status, so that all of it is below 2,500.
func TestSize(t *testing.T) {
	const mostBytes, mostLines = 300_000, 2300
	size, lines := 0, 0
	count := func(text string) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "/*") {
				lines++
			}
		}
	}
	each(t, func(name, text string, ours bool) {
		size += len(text)
		if ours {
			count(text)
		}
		if n := strings.Count(text, "\n"); ours && n > 400 {
			t.Errorf("%s has %d lines", name, n)
		}
	})
	for _, file := range []string{
		"console.go", "../admin/console.go", "../admin/stream.go", "../history.go", "../fixes.go",
		"../../dlq/audit.go", "../../replication/slot/relays.go",
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		count(string(source))
	}
	if lines > mostLines || lines < mostLines/2 || size > mostBytes {
		t.Errorf("%d lines of ours, want at most %d; %d bytes, want at most %d", lines, mostLines, size, mostBytes)
	}
}

// asked are the functions of the page that ask the API, with their method.
var asked = map[string]string{"useGet": http.MethodGet, "get": http.MethodGet, "post": http.MethodPost, "ask": http.MethodPost}

// Every path that the page asks for is one of the API, with that method.
func TestAsksTheAPI(t *testing.T) {
	document, err := os.ReadFile("../admin/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(document, &api); err != nil {
		t.Fatal(err)
	}
	var known []string
	parameter := regexp.MustCompile(`\{[^}]*\}`)
	for at, methods := range api.Paths {
		for method := range methods {
			known = append(known, strings.ToUpper(method)+" "+parameter.ReplaceAllString(strings.TrimPrefix(at, "/api/v1/"), "{}"))
		}
	}
	call := regexp.MustCompile("[^.\\w](?:(?:call|send)\\('(GET|DELETE)', |(useGet|get|post|ask)\\((?:n \\? null : )?)('[^']*'|`[^`]*`|of\\b)")
	found := 0
	each(t, func(name, text string, ours bool) {
		if !ours || path.Ext(name) != ".js" {
			return
		}
		for _, m := range call.FindAllStringSubmatch(text, -1) {
			method := m[1]
			if method == "" {
				method = asked[m[2]]
			}
			for _, at := range spellings(strings.Trim(m[3], "'`")) {
				found++
				if !slices.Contains(known, method+" "+at) {
					t.Errorf("%s: %s %s is not in openapi.json", name, method, at)
				}
			}
		}
	})
	if found < 25 {
		t.Errorf("%d calls are found", found)
	}
}

// spellings are the paths that a template of the page stands for.
func spellings(template string) []string {
	if template == "of" {
		template = "${of}"
	}
	var out []string
	for _, of := range []struct {
		table     string
		one, many []string
	}{
		{"dead-letters", []string{"replay", "discard", "redact"}, []string{"replay", "discard", "redact", "purge"}},
		{"deferred", []string{"retry", "dead-letter"}, []string{"retry", "dead-letter"}},
	} {
		at := strings.ReplaceAll(template, "${of}", of.table)
		switch {
		case strings.HasSuffix(at, "${action}"):
			for _, action := range of.many {
				out = append(out, strings.TrimSuffix(at, "${action}")+action)
			}
		case strings.HasSuffix(at, "${doing}"):
			for _, action := range of.one {
				out = append(out, strings.TrimSuffix(at, "${doing}")+action)
			}
		default:
			out = append(out, at)
		}
	}
	for i, at := range out {
		out[i] = regexp.MustCompile(`\$\{(?:[^{}]|\{[^}]*\})*\}`).ReplaceAllString(at, "{}")
	}
	slices.Sort(out)
	return slices.Compact(out)
}
