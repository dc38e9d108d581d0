// The planted bugs: how a patch file is read, and how the test that must notice it is found.

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// bug is one patch file: what it breaks and which test must notice, in lines "Name: value" before
// the diff. Args may be left out.
type bug struct {
	name      string // of the file: I1/NAME, without .patch
	path      string // absolute
	invariant string // I1 to I11 of ARCHITECTURE.md: its folder
	pkg       string // of the test, as go test takes it
	test      string // the one test that must turn red, exactly as go test -v prints it
	what      string // the bug in a few words
	args      string // of the test, none mostly: a part of what it plays is enough
	files     []string
	rapid     bool // the package's tests are linked with rapid, and so have its flags
}

// readBugs reads every patch of the directory's folders I1 to I11, in the order of their names. All
// faults are reported at once.
func readBugs(dir string) ([]bug, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*.patch"))
	if err != nil {
		return nil, err
	}
	var bugs []bug
	var faults []error
	for _, name := range paths {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read patch: %w", err)
		}
		b, err := parseBug(string(text))
		folder := filepath.Base(filepath.Dir(name))
		if err == nil && b.invariant != folder {
			err = fmt.Errorf("breaks %s but is in the folder of %s", b.invariant, folder)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
		b.name, b.path = path.Join(folder, strings.TrimSuffix(filepath.Base(name), ".patch")), name
		bugs = append(bugs, b)
	}
	return bugs, errors.Join(faults...)
}

func parseBug(text string) (bug, error) {
	var b bug
	header := map[string]*string{"Invariant": &b.invariant, "Package": &b.pkg, "Test": &b.test, "Bug": &b.what, "Args": &b.args}
	head, diff, _ := strings.Cut(text, "\n--- ")
	for line := range strings.Lines(head) {
		if name, value, _ := strings.Cut(line, ": "); header[name] != nil {
			*header[name] = strings.TrimSpace(value)
		}
	}
	for line := range strings.Lines(diff) {
		if file, ok := strings.CutPrefix(line, "+++ b/"); ok {
			b.files = append(b.files, strings.TrimSpace(file))
		}
	}
	for _, name := range []string{"Invariant", "Package", "Test", "Bug"} {
		if *header[name] == "" {
			return b, fmt.Errorf("no line %q before the diff", name+": ...")
		}
	}
	if len(b.files) == 0 {
		return b, errors.New("no diff with the prefixes a/ and b/")
	}
	for _, file := range b.files {
		if !isProduct(file) {
			return b, fmt.Errorf("changes %s: a bug is planted in the code under test, never in a test", file)
		}
	}
	return b, nil
}

// isProduct: the code that is linked into the binary, or into a service that writes or consumes.
func isProduct(file string) bool {
	isPartOf := func(folder string) bool { return strings.HasPrefix(file, folder) }
	return strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") &&
		slices.ContainsFunc([]string{"cmd/", "internal/", "inbox/", "outbox/"}, isPartOf) &&
		!strings.HasPrefix(file, "internal/devenv/") && !strings.HasPrefix(file, "internal/sink/sinktest/")
}

// findTests looks for the named test functions below root; all of the bugs are planted in each CI
// run, so none may be nightly. All that are missing are reported at once.
func findTests(root string, bugs []bug) error {
	var faults []error
	for i := range bugs {
		b := &bugs[i]
		names, err := filepath.Glob(filepath.Join(root, b.pkg, "*_test.go"))
		if err != nil {
			return err
		}
		found := false
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return fmt.Errorf("read test: %w", err)
			}
			b.rapid = b.rapid || bytes.Contains(text, []byte(`"pgregory.net/rapid"`))
			found = found || bytes.Contains(text, []byte("\nfunc "+b.top()+"(")) && !bytes.HasPrefix(text, []byte("//go:build nightly"))
		}
		if !found {
			faults = append(faults, fmt.Errorf("mutants/%s.patch: there is no %s in %s that is not nightly", b.name, b.top(), b.pkg))
		}
	}
	return errors.Join(faults...)
}

// pattern is the test's name as go test -run wants it: every level exact.
func (b bug) pattern() string {
	return "^" + strings.Join(strings.Split(regexp.QuoteMeta(b.test), "/"), "$/^") + "$"
}

// top is the name of the test function.
func (b bug) top() string {
	name, _, _ := strings.Cut(b.test, "/")
	return name
}
