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

// embedded are the files as they are in the repository: nothing builds them.
//
//go:embed static
var embedded embed.FS

// policy lets the page run its own scripts and talk to its own relay, and nothing else. What a
// payload brings along cannot run, load or send.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is a file of the page, plain and packed.
type file struct {
	kind          string // Content-Type
	tag           string // of its content
	plain, packed []byte
}

// read packs all files, at the first request: a relay that nobody looks at pays nothing.
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

// mimeTypes are those of our files: the system's list may have others.
var mimeTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Handler answers GET and HEAD of / and of what is below /console/. Nobody needs a token for the
// page: it shows nothing without one.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache") // kept, and asked for: a new version is seen at once
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
