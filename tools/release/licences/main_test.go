package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A module passes with a licence that is allowed, found by the detector or read by a person, and
// not with another one, with one of two, or without any.
func TestCheck(t *testing.T) {
	for _, c := range []struct{ name, component, fault string }{
		{"allowed", `"name": "example.org/a", "evidence": {"licenses": [{"license": {"id": "MIT"}}]}`, ""},
		{"read", `"name": "std"`, ""},
		{"not allowed", `"name": "example.org/b", "evidence": {"licenses": [{"license": {"id": "GPL-3.0"}}]}`, "example.org/b v1.0.0 has GPL-3.0"},
		{"one of two", `"name": "example.org/c", "evidence": {"licenses": [{"license": {"id": "MIT"}}, {"license": {"id": "GPL-3.0"}}]}`, "has MIT, GPL-3.0"},
		{"none", `"name": "example.org/d"`, "example.org/d v1.0.0 has none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "list.json")
			text := `{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"type": "library", "version": "v1.0.0", ` + c.component + `}]}`
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			err := check(file, seen)
			switch {
			case c.fault == "" && (err != nil || len(seen) != 1):
				t.Errorf("it is not in order: %v", err)
			case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault) || len(seen) != 0):
				t.Errorf("the fault is %v, want %s", err, c.fault)
			}
		})
	}
}
