// This file checks what the pages show and only the binary can judge: every configuration is valid.
// What needs no binary is in test/docs.
package cli

import (
	"regexp"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// document is a file's text.
func document(t *testing.T, name string) string {
	t.Helper()
	return pages.Text(t, name)
}

// testsIn are the tests in some folders and those below them, by name, with the source of their
// package.
func testsIn(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	return pages.TestsIn(t, dirs...)
}

var blocks = regexp.MustCompile("(?ms)^ *```(yaml|sh)\n(.*?)^ *```$")
