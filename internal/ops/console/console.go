// Package console serves the page that shows a relay in a browser. It has no state and no rights of
// its own: the page asks the API with the token of who looks at it.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// embedded has the files as they are in the repository; there is no build step.
//
//go:embed static
var embedded embed.FS

// policy lets the page run its own scripts and talk to its own relay, and nothing else, so that
// what a payload brings along cannot run, load or send anything.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is a file of the page, plain and compressed.
type file struct {
	kind          string // Content-Type
	tag           string // the ETag, made of the content
	plain, packed []byte
}

// read compresses all files at the first request, so that a relay whose console nobody opens does
// not pay for it.
var read = sync.OnceValues(func() (map[string]file, error) {
	files := map[string]file{}
	err := fs.WalkDir(embedded, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		plain, err := fs.ReadFile(embedded, name)
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(plain); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		kind := mimeTypes[path.Ext(name)]
		if kind == "" {
			kind = "text/plain; charset=utf-8"
		}
		sum := sha256.Sum256(plain)
		files[strings.TrimPrefix(name, "static/")] = file{kind, fmt.Sprintf("%x", sum[:8]), plain, packed.Bytes()}
		return nil
	})
	return files, err
})

// mimeTypes are the types of the console's files. They are listed here because the system's list
// may have other types.
var mimeTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Handler answers GET and HEAD of / and of paths below /console/. Nobody needs a token for the
// page, which shows no data until it is given one.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		// browsers keep it and ask each time, so that a new version is seen at once
		h.Set("Cache-Control", "no-cache")
		if r.URL.Path == "/" || r.URL.Path == "/console" {
			h.Set("Location", "console/") // relative: a proxy may have put the relay below a path
			w.WriteHeader(http.StatusFound)
			return
		}
		files, err := read()
		if err != nil {
			http.Error(w, "the console: "+err.Error(), http.StatusInternalServerError)
			return
		}
		name, below := strings.CutPrefix(r.URL.Path, "/console/")
		if name == "" {
			name = "index.html"
		}
		f, found := files[name]
		if !below || !found {
			http.NotFound(w, r)
			return
		}
		content, tag := f.plain, f.tag
		h.Set("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			content, tag = f.packed, tag+"-gzip"
			h.Set("Content-Encoding", "gzip")
		}
		h.Set("Content-Type", f.kind)
		h.Set("ETag", `"`+tag+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}
