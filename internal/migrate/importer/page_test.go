package importer

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/rules"
)

const page = "../../../docs/import.md"

// The tables of docs/import.md are the rules. -rewrite writes them again.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const heading = "## Every property\n\n"
	before, _, found := strings.Cut(string(text), heading)
	if !found {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	want := before + heading + rules.Tables()
	if rewrite := flag.Lookup("rewrite"); rewrite != nil && rewrite.Value.String() == "true" {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Errorf("%s is not what the rules say; write it again: go test ./internal/migrate/importer -run TestPage -rewrite", page)
	}
}
