package dashboards

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// This file reads the dashboards.

// board is of a dashboard what a query needs, and what a reader sees.
type board struct {
	UID, Title    string
	SchemaVersion int
	Panels        []*panel
	Templating    struct{ List []variable }
	text          string
}

type variable struct {
	Name, Type, Definition, AllValue string
	Multi, IncludeAll                bool
	Datasource                       *source
	Query                            any
}

type source struct{ Type, UID string }

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               *source
	Links                    []struct{ URL string }
	Targets                  []target
	FieldConfig              struct {
		Defaults struct{ Unit string }
	}
}

type target struct {
	RefID, Expr, Format, LegendFormat string
	Datasource                        *source
	Instant, Range                    bool
}

func boards(t *testing.T) (all []*board) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		b := &board{text: string(text)}
		must(t, json.Unmarshal(text, b))
		all = append(all, b)
	}
	if len(all) != 3 {
		t.Fatalf("found %d dashboards, want three", len(all))
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
