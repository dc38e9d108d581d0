package deploycheck

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// texts are the pages of docs, the README, and every file of deploy.
func texts(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{"README.md": read(t, "README.md")}
	for _, dir := range []string{"docs", "deploy", "examples"} {
		must(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, err := filepath.Rel(root, path)
			found[name] = read(t, name)
			return err
		}))
	}
	if len(found) < 40 {
		t.Fatalf("only %d files", len(found))
	}
	return found
}

// keys are those of the configuration, for every sink; sections too.
func keys(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, sink := range []string{"rabbitmq", "kafka", "stdout"} {
		file := filepath.Join(t.TempDir(), "cdc-relay.yaml")
		must(t, os.WriteFile(file, []byte("source: {url: postgres://h/d}\nsink: {"+sink+": {}, cloudevents: {mode: binary}}\n"), 0o600))
		out, err := runs(t, nil, relay, "-c", file, "config", "print")
		must(t, err)
		for key := range printedKeys(t, out) {
			known[key] = true
		}
	}
	if len(known) < 60 {
		t.Fatalf("only %d keys", len(known))
	}
	return known
}

// notKeys look like keys: names of exchanges and topics, of spans and their attributes, files, and
// options under Debezium's own names; log.caller is the key of docs/first-change.md.
var notKeys = regexp.MustCompile(`^outbox\.(event|events|dlx|dlq|publish|outcome|position|replay|slot)\b|\.(yaml|properties)$|^sink\.compat\.options\.|^sink\.rabbitmq\.(null\.value|routing)|^log\.caller$`)

// Every key that a page or a file of deploy names exists: as section.key in code, and as a variable
// of the environment.
func TestKeysExist(t *testing.T) {
	t.Parallel()
	known := keys(t)
	sections := `(?:source|outbox|sink|delivery|retry|dead_letters|admin|log)`
	dotted := regexp.MustCompile("`(" + sections + `\.[a-z_]+(?:\.[a-z_]+)*)[` + "`:= ]")
	variable := regexp.MustCompile(`\bCDC_RELAY_([A-Z_]+?__[A-Z_]+)\b`)
	count := 0
	for name, text := range texts(t) {
		for _, found := range dotted.FindAllStringSubmatch(text, -1) {
			if count++; !known[found[1]] && !notKeys.MatchString(found[1]) {
				t.Errorf("%s: there is no key %s", name, found[1])
			}
		}
		for _, found := range variable.FindAllStringSubmatch(text, -1) {
			key := strings.ToLower(strings.ReplaceAll(found[1], "__", "."))
			if count++; !known[key] && key != "section.key" {
				t.Errorf("%s: there is no key for CDC_RELAY_%s", name, found[1])
			}
		}
	}
	if count < 60 {
		t.Errorf("only %d keys were found", count)
	}
}

// Every command of the relay that is named in code exists, with the flags that follow it.
func TestCommandsExist(t *testing.T) {
	t.Parallel()
	commands := subcommands(t, nil, 0)
	code := regexp.MustCompile("(?s)```sh\n.*?\n```|`[^`\n]+`")
	call := regexp.MustCompile(`\bcdc-relay ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)?)?([^|\n` + "`" + `&;]*)`)
	flag := regexp.MustCompile(` (--[a-z-]+)`)
	release := regexp.MustCompile(`\bhelm [a-z]+ cdc-relay `)
	count := 0
	for name, text := range texts(t) {
		pieces := []string{text}
		if filepath.Ext(name) == ".md" {
			pieces = code.FindAllString(text, -1)
		} else if strings.HasSuffix(name, ".rules.yml") || filepath.Ext(name) == ".json" {
			continue // prose about the relay, and its runbooks
		}
		for _, piece := range pieces {
			for _, found := range call.FindAllStringSubmatch(release.ReplaceAllString(strings.ReplaceAll(piece, "\\\n", " "), ""), -1) {
				words := strings.Fields(found[1])
				if len(words) == 0 || filepath.Ext(name) != ".md" && commands[words[0]] == nil && !strings.Contains(piece, "`cdc-relay "+words[0]) {
					continue // a path, or prose
				}
				help := commands[found[1]]
				if help == nil {
					help = commands[words[0]]
				}
				if count++; help == nil {
					t.Errorf("%s: there is no command %q", name, found[1])
					continue
				}
				for _, f := range flag.FindAllStringSubmatch(" "+found[2], -1) {
					if !slices.Contains(help, f[1]) {
						t.Errorf("%s: cdc-relay %s has no flag %s", name, found[1], f[1])
					}
				}
			}
		}
	}
	if count < 50 {
		t.Errorf("only %d commands were found", count)
	}
}

// subcommands are the flags of every command, by its name.
func subcommands(t *testing.T, path []string, depth int) map[string][]string {
	t.Helper()
	help, err := runs(t, nil, relay, append(slices.Clone(path), "--help")...)
	if err != nil {
		t.Fatalf("%v: %s", path, help)
	}
	all := map[string][]string{}
	if depth > 0 {
		all[strings.Join(path, " ")] = append([]string{}, regexp.MustCompile(`--[a-z-]+`).FindAllString(help, -1)...)
	}
	_, list, found := strings.Cut(help, "Available Commands:\n")
	if !found || depth > 1 {
		return all
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for _, line := range strings.Split(list, "\n") {
		if words := strings.Fields(line); len(words) > 0 {
			for name, flags := range subcommands(t, append(slices.Clone(path), words[0]), depth+1) {
				all[name] = flags
			}
		}
	}
	return all
}

// Every file of the repository that is named exists.
func TestFilesExist(t *testing.T) {
	t.Parallel()
	path := regexp.MustCompile(`(?:^|[\s(` + "`" + `"])((?:deploy|docs|examples|scripts|bench|internal|test|tools)/[A-Za-z0-9_./-]*[A-Za-z0-9_/])`)
	count := 0
	for name, text := range texts(t) {
		if name == "docs/comparison.md" {
			text, _, _ = strings.Cut(text, "\n## Sources\n") // files of other repositories
		}
		for _, found := range path.FindAllStringSubmatch(text, -1) {
			count++
			if _, err := os.Stat(filepath.Join(root, found[1])); err != nil && !inPackage(found[1]) {
				t.Errorf("%s names %s, which is not there", name, found[1])
			}
		}
	}
	if count < 40 {
		t.Errorf("only %d files are named", count)
	}
}

// inPackage reports whether a file of that name exists with another extension.
func inPackage(name string) bool {
	found, err := filepath.Glob(filepath.Join(root, name) + ".*")
	return err == nil && len(found) > 0
}

// Every port that follows the relay's name, or in an address of its API, is the one that it
// listens on by default.
func TestPortsOfTheDocuments(t *testing.T) {
	t.Parallel()
	want := port(t, configuration(t, "deploy/systemd/cdc-relay.yaml")["admin.listen"])
	address := regexp.MustCompile(`:(\d+)(?:/api/|/metrics|/healthz|/readyz)`)
	count := 0
	for name, text := range texts(t) {
		for _, found := range address.FindAllStringSubmatch(text, -1) {
			if found[1] == "3000" { // Grafana's own health
				continue
			}
			if count++; found[1] != want {
				t.Errorf("%s: %s, admin.listen has %s", name, found[0], want)
			}
		}
	}
	if count < 3 {
		t.Error(fmt.Sprint("only ", count, " addresses were found"))
	}
}
