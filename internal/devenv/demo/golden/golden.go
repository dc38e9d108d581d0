// Package golden compares what the demo draws with files of testdata.
package golden

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files again")

// Compare compares text with a file of testdata, in which an escape is written as ^[.
func Compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	got = strings.ReplaceAll(got, "\x1b", "^[")
	if *rewrite {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", path, got, want)
	}
}

// Text is lines as a file has them.
func Text(lines []string) string { return strings.Join(lines, "\n") + "\n" }

// Narrow fails unless every line fits into 80 columns, of which a terminal may want the last for
// its cursor.
func Narrow(t *testing.T, lines []string) {
	t.Helper()
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 79 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
