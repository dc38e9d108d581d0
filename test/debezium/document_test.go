package debezium

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
)

var rewrite = flag.Bool("rewrite", false, "write CASES.md again")

// CASES.md lists what is run.
func TestDocument(t *testing.T) {
	const path = "CASES.md"
	want := cases.Document()
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the cases say; go test ./test/debezium -run TestDocument -args -rewrite", path)
	}
}

// There are as many as was promised, each with a name of its own in its group, and each group has a
// name of its own.
func TestCasesAreDistinct(t *testing.T) {
	names, count := map[string]bool{}, 0
	for _, g := range cases.All() {
		if names[g.Name] {
			t.Errorf("there are two groups %s", g.Name)
		}
		names[g.Name] = true
		in := map[string]bool{}
		for _, c := range g.Cases {
			if in[c.Name] {
				t.Errorf("group %s has two cases %s", g.Name, c.Name)
			}
			in[c.Name] = true
			count++
		}
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".json"); !names[name] {
			t.Errorf("%s is of no group", file)
		}
	}
	if count < 60 {
		t.Errorf("there are %d cases, want at least 60", count)
	}
}
