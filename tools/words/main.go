// Words checks the language of the repository: no retired word, no comment beyond column 100, and
// no Go file of the product or its tools that does not say in its first line what is in it.
//
//	go run ./tools/words
//
// One word stands for one thing (docs/glossary.md); retired.txt lists what a word replaced.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

//go:embed retired.txt
var retired string

// columns is how wide a comment may be; a tab counts as four.
const columns = 100

// word is one retired word: what finds it, what to write instead, and in which contexts it is meant otherwise.
type word struct {
	find   *regexp.Regexp
	use    string
	except *regexp.Regexp
}

// foreign are files whose words are not ours: what other programs wrote, lists of checksums, and this tool's own list.
var foreign = regexp.MustCompile(`^(tools/words/|mutants/.*\.patch$|LICENSE$)|go\.(mod|sum)$|\.(png|svg|java)$|testdata/.*\.json$`)

func main() {
	words := parse(retired)
	out, err := exec.CommandContext(context.Background(), "git", "ls-files", "-co", "--exclude-standard").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "list files:", err)
		os.Exit(1)
	}
	var faults []string
	for path := range strings.FieldsSeq(string(out)) {
		if foreign.MatchString(path) {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil || bytes.IndexByte(b, 0) >= 0 {
			continue // a file that was deleted, or a picture
		}
		faults = append(faults, check(path, b, words)...)
	}
	for _, f := range faults {
		fmt.Println(f)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// parse reads the list: find <tab> use <tab> except, an empty line or a # for people.
func parse(list string) (words []word) {
	for line := range strings.Lines(list) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(f) < 2 || strings.HasPrefix(line, "#") {
			continue
		}
		w := word{find: regexp.MustCompile(`(?i)\b(` + f[0] + `)\b`), use: f[1]}
		if len(f) > 2 {
			w.except = regexp.MustCompile(`(?i)` + f[2])
		}
		words = append(words, w)
	}
	return words
}

// check returns the faults of one file, each as path:line: what.
func check(path string, b []byte, words []word) (faults []string) {
	for n, line := range bytes.Split(b, []byte("\n")) {
		said := spaced(string(line))
		for _, w := range words {
			for _, at := range w.find.FindAllStringIndex(said, -1) {
				if w.except != nil && w.except.MatchString(said[max(0, at[0]-30):min(len(said), at[1]+20)]) {
					continue
				}
				faults = append(faults, fmt.Sprintf("%s:%d: %q: use %s", path, n+1, said[at[0]:at[1]], w.use))
			}
		}
	}
	if filepath.Ext(path) == ".go" {
		faults = append(faults, tooWide(path, b)...)
		if !untitled.MatchString(path) && !titled.Match(b) {
			faults = append(faults, path+":1: the first line must say what is in the file")
		}
	}
	return faults
}

// untitled are Go files that need not say what is in them: tests and what only they use.
var untitled = regexp.MustCompile(`_test\.go$|^test/|(^|/)testdata/`)

// titled is a file that begins with a comment, perhaps after its build constraint.
var titled = regexp.MustCompile(`^\s*(//go:build .*\s+)?(// |/\*)`)

var hump = regexp.MustCompile(`([a-z0-9])([A-Z])|_`)

// spaced takes identifiers apart, so that their words are found: retryTable and retry_table are "retry table".
func spaced(line string) string { return hump.ReplaceAllString(line, "$1 $2") }

// tooWide finds comments that end beyond the last column.
func tooWide(path string, b []byte) (faults []string) {
	fset := token.NewFileSet()
	f := fset.AddFile(path, -1, len(b))
	var s scanner.Scanner
	s.Init(f, b, nil, scanner.ScanComments)
	lines := strings.Split(string(b), "\n")
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return faults
		}
		if tok != token.COMMENT || !strings.HasPrefix(lit, "// ") {
			continue
		}
		n := f.Line(pos)
		if w := utf8.RuneCountInString(strings.ReplaceAll(lines[n-1], "\t", "    ")); w > columns && !strings.Contains(lit, "://") {
			faults = append(faults, fmt.Sprintf("%s:%d: a comment of %d columns: at most %d", path, n, w, columns))
		}
	}
}
