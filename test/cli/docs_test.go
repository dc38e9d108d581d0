// This file checks what the pages show and only the binary can judge: every configuration is valid.
// What needs no binary is in test/docs.
package cli

import (
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// document is a file's text.
func document(t *testing.T, name string) string {
	t.Helper()
	return pages.Text(t, name)
}

// testsIn are the tests in some folders and those below them, by name, with the source of their
// package.
func testsIn(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	return pages.TestsIn(t, dirs...)
}

var blocks = regexp.MustCompile("(?ms)^ *```(yaml|sh)\n(.*?)^ *```$")

// Every piece of configuration in the pages and in examples/ is valid, alone or added to the
// smallest one.
func TestConfigurationsOfTheDocuments(t *testing.T) {
	t.Parallel()
	binary := runner.Build(t)
	configs := map[string]string{}
	for _, page := range pages.All(t) {
		for _, block := range pages.Fences(document(t, page), "yaml") {
			configs[page+": "+block.Text] = block.Text
		}
	}
	examples, err := filepath.Glob("../../examples/*.yaml")
	must(t, err)
	for _, example := range examples {
		name := path.Join("examples", filepath.Base(example))
		configs[name] = document(t, name)
	}
	if len(configs) < 14 {
		t.Fatalf("only %d configurations were found", len(configs))
	}
	for where, config := range configs {
		config = regexp.MustCompile(`\$\{(file:[^}]*|[A-Z_]+)\}`).ReplaceAllString(config, "from-elsewhere")
		if !regexp.MustCompile(`(?m)^source:`).MatchString(config) {
			config = goodSource + config
		}
		if !regexp.MustCompile(`(?m)^sink:`).MatchString(config) {
			config += "sink: {stdout: {}}\n"
		}
		res, err := runner.RunCommand(await.Context(t), binary, config, "config", "validate")
		must(t, err)
		if res.Code != 0 {
			t.Errorf("%s\n%s", where, strings.TrimSpace(res.Stderr))
		}
	}
}
