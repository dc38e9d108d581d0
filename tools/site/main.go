// Site makes the documentation site of the repository's pages, together with the generator that
// requirements.txt pins (make docs-site). There is no other copy of a page: stage writes the pages
// that the navigation of mkdocs.yml lists into an empty folder, as the generator reads them, and
// check reads what it has built.
//
//	go run ./tools/site stage FOLDER
//	go run ./tools/site check FOLDER
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("want stage FOLDER or check FOLDER")
	}
	root := pages.Root()
	config, err := os.ReadFile(filepath.Join(root, "tools/site/mkdocs.yml"))
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	s, err := newStage(root, args[1], string(config), string(changelog))
	if err != nil {
		return err
	}
	switch args[0] {
	case "stage":
		return s.write()
	case "check":
		built, err := readSite(args[1], s.address)
		if err != nil {
			return err
		}
		return built.check(s.pages)
	default:
		return fmt.Errorf("want stage or check, not %q", args[0])
	}
}
