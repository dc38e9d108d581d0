package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// small is one answer as test/dashboards records it.
const small = `{"expr": "x", "legend": "{{le}}", "now": [{"metric": {"le": "1", "slot": "s"}, "value": [120, "1"]}],
	"over": [{"metric": {"le": "1", "slot": "s"}, "values": [[60, "1"], [120, "2"]]}]}`

// TestDraws draws both dashboards. What is not understood, or not there, is an error and no empty picture.
func TestDraws(t *testing.T) {
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	must(t, err)
	brought := map[string]map[int][]json.RawMessage{}
	for _, file := range files {
		var b board
		must(t, read(file, &b, false))
		brought[b.UID] = map[int][]json.RawMessage{}
		for _, p := range b.Panels {
			if len(p.Targets) > 0 {
				brought[b.UID][p.ID] = slices.Repeat([]json.RawMessage{json.RawMessage(small)}, len(p.Targets))
			}
		}
	}
	text, err := json.Marshal(map[string]any{"start": 1000, "end": 120000, "dashboards": brought})
	must(t, err)
	answers, pictures := filepath.Join(t.TempDir(), "answers"), t.TempDir()
	draw := func(text string) error {
		must(t, os.WriteFile(answers, []byte(text), 0o644))
		return run(answers, pictures, files)
	}
	must(t, draw(string(text)))
	if drawn, err := filepath.Glob(pictures + "/*.png"); err != nil || len(drawn) != 2 {
		t.Errorf("drawn: %v, %v", drawn, err)
	}
	for part, other := range map[string]string{`"over"`: `"range"`, `"start"`: `"begin"`, `{"1":[{`: `{"1":[],"1001":[{`, `"cdc-relay-slots"`: `"slots"`} {
		wrong := strings.Replace(string(text), part, other, 1)
		if err := draw(wrong); err == nil || wrong == string(text) {
			t.Errorf("%s for %s is taken", other, part)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
