package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// This file reads the dashboards, and puts values for Grafana's variables.

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
	FieldConfig              struct{ Defaults struct{ Unit string } }
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
	if len(all) != 2 {
		t.Fatalf("found %d dashboards, want two", len(all))
	}
	return all
}

// values are what Grafana would put for variables, for the time range from start to end.
type values struct {
	chosen     map[string]string
	start, end time.Time
}

const (
	interval = time.Second // between scrapes
	step     = time.Second // of a query over a time
)

var used = regexp.MustCompile(`\$\{?(\w+)\}?`)

// expand is an expression as Grafana sends it.
func (v values) expand(expr string) (string, error) {
	var unknown []string
	expr = used.ReplaceAllStringFunc(expr, func(use string) string {
		name := used.FindStringSubmatch(use)[1]
		switch value, known := v.chosen[name]; {
		case known:
			return value
		case name == "__range":
			return fmt.Sprintf("%dms", v.end.Sub(v.start).Milliseconds())
		case name == "__rate_interval":
			return max(step+interval, 4*interval).String()
		default:
			unknown = append(unknown, name)
			return use
		}
	})
	if len(unknown) > 0 {
		return "", fmt.Errorf("there is no variable %s", strings.Join(unknown, ", "))
	}
	return expr, nil
}

// alternatives is how Grafana writes several values of a variable in a regular expression.
func alternatives(chosen []string) string {
	slices.Sort(chosen)
	quoted := make([]string, len(chosen))
	for i, value := range chosen {
		quoted[i] = strings.ReplaceAll(regexp.QuoteMeta(value), `\`, `\\`) // once more, for the string of PromQL
	}
	return "(" + strings.Join(quoted, "|") + ")"
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
