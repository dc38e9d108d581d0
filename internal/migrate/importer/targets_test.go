package importer

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

// Every key of ours that a rule names exists.
func TestTargetsExist(t *testing.T) {
	var schema strings.Builder
	if err := config.Schema(&schema); err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal([]byte(schema.String()), &root); err != nil {
		t.Fatal(err)
	}
	Page(func(_ string, names []string, _ Verdict, targets, _ string) {
		for target := range strings.SplitSeq(targets, ", ") {
			at := root
			for name := range strings.SplitSeq(strings.SplitAfter(target+".", "options.")[0], ".") {
				if name == "" {
					continue
				}
				properties, _ := at["properties"].(map[string]any)
				next, ok := properties[name].(map[string]any)
				if !ok {
					t.Errorf("%v become %s, and there is no %s", names, target, name)
					break
				}
				at = next
			}
		}
	})
}
