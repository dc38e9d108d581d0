package importer

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

const page = "../../../docs/import.md"

// The tables of docs/import.md are the rules. -rewrite writes them anew.
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
	want := before + heading + Tables()
	if rewrite := flag.Lookup("rewrite"); rewrite != nil && rewrite.Value.String() == "true" {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Errorf("%s is not what the rules say; write it anew: go test ./internal/debezium/importer -run TestPage -rewrite", page)
	}
}

// Each key of ours that a rule names exists.
func TestTargetsExist(t *testing.T) {
	var schema strings.Builder
	if err := config.Schema(&schema); err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal([]byte(schema.String()), &root); err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		for target := range strings.SplitSeq(r.target, ", ") {
			if target == "" {
				continue
			}
			at := root
			for name := range strings.SplitSeq(strings.SplitAfter(target+".", "options.")[0], ".") {
				if name == "" {
					continue
				}
				properties, _ := at["properties"].(map[string]any)
				next, ok := properties[name].(map[string]any)
				if !ok {
					t.Errorf("%v become %s, and there is no %s", r.names, target, name)
					break
				}
				at = next
			}
		}
	}
}
