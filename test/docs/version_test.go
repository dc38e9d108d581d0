package docs

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// The version of the relay is that of the newest release of CHANGELOG.md wherever it stands: in
// commands and links of the pages, in the chart, in what is made of the chart, and where a module
// asks for another one of ours. CONTRIBUTING.md has examples.
func TestReleaseVersion(t *testing.T) {
	t.Parallel()
	newest := regexp.MustCompile(`(?m)^## \[(\d[^]]*)\]`).FindStringSubmatch(pages.Text(t, "CHANGELOG.md"))
	if newest == nil {
		t.Fatal("CHANGELOG.md has no release")
	}
	files := pages.All(t)
	for _, pattern := range []string{"go.work", "go.mod", "*/go.mod", "*/*/go.mod", "deploy/helm/*.yaml", "deploy/helm/*/*.yaml", "deploy/kubernetes/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(pages.Root(), pattern))
		must(t, err)
		for _, path := range found {
			file, err := filepath.Rel(pages.Root(), path)
			must(t, err)
			files = append(files, filepath.ToSlash(file))
		}
	}
	named := regexp.MustCompile(`(?:cdc-relay[/\w]*[-_:@ ]|releases/download/|refs/tags/|VERSION=|/version: "?|(?m:^)(?:appVersion|version): "?)` +
		`v?(\d+\.\d+\.\d+(?:-[a-z]+\.\d+)?)`)
	in := map[string]int{}
	for _, file := range files {
		if file == "CHANGELOG.md" || file == "CONTRIBUTING.md" {
			continue
		}
		for _, found := range named.FindAllStringSubmatch(pages.Text(t, file), -1) {
			in[file]++
			if found[1] != newest[1] {
				t.Errorf("%s has %q, the newest release is %s", file, found[0], newest[1])
			}
		}
	}
	for file, least := range map[string]int{
		"README.md": 3, "SECURITY.md": 3, "docs/getting-started.md": 10, "docs/running.md": 2, "deploy/README.md": 1,
		"deploy/helm/cdc-relay/Chart.yaml": 2, "deploy/kubernetes/rabbitmq.yaml": 5, "go.mod": 3, "go.work": 4,
	} {
		if in[file] < least {
			t.Errorf("%s has the version %d times, want %d or more", file, in[file], least)
		}
	}
}
