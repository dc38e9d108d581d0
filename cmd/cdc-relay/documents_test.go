// This file checks what the pages show and only the commands can judge: each configuration is
// valid, each line of docs/dead-letters.md is understood. What needs no command is in test/docs.
package main

import (
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// Every piece of configuration in the pages and in examples/ is valid, alone or added to the
// smallest one.
func TestConfigurationsOfTheDocuments(t *testing.T) {
	configs := map[string]string{}
	for _, page := range pages.All(t) {
		for _, block := range pages.Fences(pages.Text(t, page), "yaml") {
			configs[page+": "+block.Text] = block.Text
		}
	}
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range examples {
		name := path.Join("examples", filepath.Base(example))
		configs[name] = pages.Text(t, name)
	}
	if len(configs) < 14 {
		t.Fatalf("only %d configurations were found", len(configs))
	}
	emptyDirectory(t)
	for where, config := range configs {
		config = regexp.MustCompile(`\$\{(file:[^}]*|[A-Z_]+)\}`).ReplaceAllString(config, "from-elsewhere")
		if !regexp.MustCompile(`(?m)^source:`).MatchString(config) {
			config = "source: {url: postgres://nobody@127.0.0.1:1/nowhere}\n" + config
		}
		if !regexp.MustCompile(`(?m)^sink:`).MatchString(config) {
			config += "sink: {stdout: {}}\n"
		}
		writeFile(t, "cdc-relay.yaml", config)
		if code, _, stderr := commandLine(t, "config", "validate"); code != 0 {
			t.Errorf("%s\n%s", where, strings.TrimSpace(stderr))
		}
	}
}

// The command lines of docs/dead-letters.md are lines that the command understands.
func TestCommandsOfDeadLetters(t *testing.T) {
	lines := 0
	for _, block := range pages.Fences(pages.Text(t, "docs/dead-letters.md"), "sh") {
		for line := range strings.Lines(block.Text) {
			rest, ours := strings.CutPrefix(strings.TrimSpace(line), "cdc-relay ")
			if !ours {
				continue
			}
			lines++
			rest = regexp.MustCompile(`'[^']*'|"[^"]*"`).ReplaceAllString(rest, "x")
			rest, _, _ = strings.Cut(rest, " #")
			if code, stdout, stderr := commandLine(t, append(strings.Fields(rest), "--help")...); code != 0 || !strings.Contains(stdout, "Usage:") {
				t.Errorf("%s: exit %d: %s", line, code, stderr)
			}
		}
	}
	if lines < 10 {
		t.Errorf("only %d lines were found", lines)
	}
}
