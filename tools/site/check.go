// The check reads what was built as a browser would: each link leads to a page and a heading of it,
// nothing is loaded from another host, each page of the navigation is there, and no Markdown is
// left in the text.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// site is what was built.
type site struct {
	base  string          // the path of the site's address: "/cdc-relay/"
	files map[string]bool // paths from the site's folder
	pages map[string]*builtPage
	loads map[string][]string // what a page or a stylesheet loads
}

// builtPage is one page of the site.
type builtPage struct {
	ids   map[string]bool // what a link may name behind #
	links []string
	left  []string // Markdown that is in the text
	bound bool     // the browser is told to load nothing from elsewhere
}

// readSite reads a folder. address is where the site will be.
func readSite(folder, address string) (*site, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	s := &site{base: at.Path, files: map[string]bool{}, pages: map[string]*builtPage{}, loads: map[string][]string{}}
	return s, filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		s.files[name] = true
		text, err := os.ReadFile(file)
		switch {
		case err != nil:
			return err
		case path.Ext(name) == ".css":
			s.loads[name] = loadedByStyle(string(text))
		case path.Ext(name) == ".html":
			return s.readPage(name, string(text))
		}
		return nil
	})
}

// pointers are the kinds of links that load nothing.
var pointers = []string{"canonical", "alternate", "next", "prev", "edit", "license"}

func (s *site) readPage(name, text string) error {
	doc, err := html.Parse(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p := &builtPage{ids: map[string]bool{}}
	s.pages[name] = p
	for n := range doc.Descendants() {
		switch {
		case n.Type == html.TextNode && !inside(n, "pre", "code", "script", "style", "title"):
			p.left = append(p.left, markdown.FindAllString(n.Data, -1)...)
			continue
		case n.Type == html.TextNode && inside(n, "style"):
			s.loads[name] = append(s.loads[name], loadedByStyle(n.Data)...)
			continue
		case n.Type != html.ElementNode:
			continue
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "id", a.Key == "name" && n.Data == "a":
				p.ids[a.Val] = true
			case a.Key == "href" && (n.Data == "a" || n.Data == "link" && slices.Contains(pointers, attribute(n, "rel"))):
				p.links = append(p.links, a.Val)
			case a.Key == "style":
				s.loads[name] = append(s.loads[name], loadedByStyle(a.Val)...)
			case a.Key == "srcset":
				for _, one := range strings.Split(a.Val, ",") {
					s.loads[name] = append(s.loads[name], strings.Fields(one)[0])
				}
			case a.Key == "href", a.Key == "src", a.Key == "poster", a.Key == "data" && n.Data == "object", a.Key == "action":
				s.loads[name] = append(s.loads[name], a.Val)
			case a.Key == "content" && attribute(n, "http-equiv") == "Content-Security-Policy":
				p.bound = strings.HasPrefix(a.Val, "default-src 'self';")
			}
		}
	}
	return nil
}

// markdown finds what is Markdown still, in a text outside of code.
var markdown = regexp.MustCompile("\\]\\(|```|\\*\\*|\\{#|(?m:^(?:- |\\d+\\. |\\| |#+ ).*)")

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// inside reports whether a node is in one of some elements.
func inside(n *html.Node, elements ...string) bool {
	for parent := range n.Ancestors() {
		if parent.Type == html.ElementNode && slices.Contains(elements, parent.Data) {
			return true
		}
	}
	return false
}

var styleLoads = regexp.MustCompile(`url\(\s*(?:"([^"]*)"|'([^']*)'|([^)'"]*))\s*\)|@import\s+["']([^"']*)`)

// loadedByStyle is what a stylesheet loads.
func loadedByStyle(text string) (all []string) {
	for _, found := range styleLoads.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1]+found[2]+found[3]+found[4])
	}
	return all
}

// check names all faults. pages are the paths of the Markdown files that the site must have.
func (s *site) check(pages []string) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, page := range pages {
		if s.pages[builtAs(page)] == nil {
			fault("%s is not on the site", page)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		page := s.pages[name]
		if !page.bound {
			fault("%s lets the browser load from other hosts", name)
		}
		for _, left := range page.left {
			fault("%s has Markdown in its text: %q", name, left)
		}
		for _, link := range page.links {
			if at, err := url.Parse(link); err != nil {
				fault("%s: %w", name, err)
			} else if at.Host == "" && at.Scheme == "" {
				if why := s.missing(name, at); why != "" {
					fault("%s links to %s: there is no such %s", name, link, why)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.loads)) {
		for _, load := range s.loads[name] {
			switch at, err := url.Parse(load); {
			case strings.HasPrefix(load, "data:"):
			case err != nil:
				fault("%s: %w", name, err)
			case at.Host != "" || at.Scheme != "":
				fault("%s loads %s from another host", name, load)
			case s.missing(name, at) != "":
				fault("%s loads %s: there is no such file", name, load)
			}
		}
	}
	return errors.Join(faults...)
}

// builtAs is the file of the site that has a page of the repository.
func builtAs(page string) string {
	dir, file := path.Split(strings.TrimSuffix(page, ".md"))
	if file == "README" {
		return dir + "index.html"
	}
	return dir + file + "/index.html"
}

// missing says what an address, as a page or stylesheet has it, does not reach: "" if all is there.
func (s *site) missing(from string, to *url.URL) string {
	target := from
	if to.Path != "" {
		resolved := (&url.URL{Path: s.base + from}).ResolveReference(to).Path
		inSite, ok := strings.CutPrefix(resolved, s.base)
		if !ok {
			return "file"
		}
		target = inSite
		if target == "" || strings.HasSuffix(target, "/") {
			target += "index.html"
		}
	}
	if !s.files[target] {
		return "file"
	}
	if page := s.pages[target]; page != nil && to.Fragment != "" && !page.ids[to.Fragment] {
		return "heading"
	}
	return ""
}
