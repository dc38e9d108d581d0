package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// SECURITY.md lists the modules that go.mod asks for, and the indirect ones that are in the binary,
// in the versions of go.mod, each with the day on which the version was published. -rewrite asks
// for the days.
func TestDependenciesPage(t *testing.T) {
	const page, mark = "SECURITY.md", "| Module | Version | Published |\n|---|---|---|\n"
	var asked []string
	deps := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cmd/cdc-relay")
	deps.Dir = pages.Root()
	linked, err := deps.Output()
	must(t, err)
	for _, line := range matches(`(?m)^\t(\S+ v\S+(?: // indirect)?)$`, pages.Text(t, "go.mod")) {
		line, indirect := strings.CutSuffix(line, " // indirect")
		name, _, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(line, "github.com/cdc-relay/") && (!indirect || strings.Contains(string(linked), "\n"+name+"\n")) {
			asked = append(asked, line)
		}
	}
	slices.Sort(asked)
	before, table, found := strings.Cut(pages.Text(t, page), mark)
	if !found || len(asked) < 20 {
		t.Fatalf("go.mod asks for %d modules; %s has no table of them", len(asked), page)
	}
	if *rewrite {
		_, after, _ := strings.Cut(table, "\n\n")
		table = ""
		for _, module := range asked {
			name, version, _ := strings.Cut(module, " ")
			list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", `{{.Time.Format "2006-01-02"}}`, name+"@"+version)
			list.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
			day, err := list.Output()
			must(t, err)
			table += fmt.Sprintf("| %s | %s | %s |\n", name, version, strings.TrimSpace(string(day)))
		}
		must(t, os.WriteFile(filepath.Join(pages.Root(), page), []byte(before+mark+table+"\n"+after), 0o644))
	}
	var listed []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\S+) \| (v\S+) \| 20\d\d-\d\d-\d\d \|$`).FindAllStringSubmatch(table, -1) {
		listed = append(listed, row[1]+" "+row[2])
	}
	if got, want := strings.Join(listed, "\n"), strings.Join(asked, "\n"); got != want {
		t.Errorf("%s lists\n%s\nand go.mod asks for\n%s\ngo test ./test/docs -run TestDependenciesPage -rewrite", page, got, want)
	}
}
