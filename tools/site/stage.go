// A stage is the folder in which the generator runs: mkdocs.yml with the version filled in, and in
// pages/ the pages and pictures under their paths in the repository. So a link between two pages
// is right as it stands, and the address of a page is its path. A link to any other file of the
// repository leads to that file on GitHub, at the version's tag.

package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const repository = "https://github.com/cdc-relay/cdc-relay"

// stage knows what is on the site, and where the rest is.
type stage struct {
	root    string   // the repository
	folder  string   // what is written
	config  string   // mkdocs.yml
	address string   // of the site
	version string   // "0.1.0", the newest release of CHANGELOG.md
	pages   []string // paths from the root, in the order of the navigation
}

// newStage reads the configuration's navigation and the changelog's newest version.
func newStage(root, folder, config, changelog string) (*stage, error) {
	released := regexp.MustCompile(`(?m)^## \[(\d[^]]*)\]`).FindStringSubmatch(changelog)
	if released == nil {
		return nil, errors.New("CHANGELOG.md has no release")
	}
	s := &stage{root: root, folder: folder, version: released[1]}
	s.config = strings.ReplaceAll(config, "{version}", s.version)
	if at := regexp.MustCompile(`(?m)^site_url: (\S+/)$`).FindStringSubmatch(config); at != nil {
		s.address = at[1]
	}
	_, nav, _ := strings.Cut(config, "\nnav:\n")
	for _, found := range regexp.MustCompile(`(?m)^ *- (?:\S.*: )?(\S+\.md)$`).FindAllStringSubmatch(nav, -1) {
		s.pages = append(s.pages, found[1])
	}
	if len(s.pages) == 0 || s.address == "" {
		return nil, errors.New("mkdocs.yml has no site_url, or lists no page")
	}
	return s, nil
}

// write writes all files of the stage, or names all links that lead nowhere.
func (s *stage) write() error {
	faults := []error{
		s.put("mkdocs.yml", s.config), s.copy("tools/site/theme/main.html", "theme/main.html"),
		s.copy("tools/site/theme/site.css", "pages/site.css"),
	}
	for _, page := range s.pages {
		text, err := os.ReadFile(filepath.Join(s.root, page))
		if err != nil {
			return err
		}
		linked, err := s.links(page, string(text))
		faults = append(faults, err, s.put("pages/"+page, plain(linked)))
	}
	return errors.Join(faults...)
}

// put writes a file of the stage.
func (s *stage) put(name, text string) error {
	file := filepath.Join(s.folder, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// copy has a file of the repository in the stage.
func (s *stage) copy(from, to string) error {
	bytes, err := os.ReadFile(filepath.Join(s.root, from))
	if err != nil {
		return err
	}
	return s.put(to, string(bytes))
}

var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// links is a page's text with its links as the site has them. It copies the pictures that the page
// shows.
func (s *stage) links(page, text string) (string, error) {
	var faults []error
	prose := func(text string) string {
		return link.ReplaceAllStringFunc(text, func(found string) string {
			target, err := s.target(page, link.FindStringSubmatch(found)[1])
			faults = append(faults, err)
			return "](" + target + ")"
		})
	}
	var b strings.Builder
	behind := 0
	for _, at := range code.FindAllStringIndex(text, -1) {
		b.WriteString(prose(text[behind:at[0]]) + text[at[0]:at[1]])
		behind = at[1]
	}
	b.WriteString(prose(text[behind:]))
	return b.String(), errors.Join(faults...)
}

// target is where a link of a page leads on the site.
func (s *stage) target(page, to string) (string, error) {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") || strings.HasPrefix(to, "#") {
		return to, nil
	}
	file, heading, _ := strings.Cut(to, "#")
	file = path.Join(path.Dir(page), file)
	info, err := os.Stat(filepath.Join(s.root, file))
	switch {
	case err != nil:
		return to, fmt.Errorf("%s links to %s: there is no such file", page, to)
	case slices.Contains(s.pages, file):
		return to, nil
	case slices.Contains([]string{".png", ".svg"}, path.Ext(file)):
		return to, s.copy(file, "pages/"+file)
	}
	kind := "blob"
	if info.IsDir() {
		kind = "tree"
	}
	address := fmt.Sprintf("%s/%s/v%s/%s", repository, kind, s.version, file)
	if heading != "" {
		address += "#" + heading
	}
	return address, nil
}
