package importer

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

// What each property becomes. A case is some properties over a base that imports without a word of
// doubt (testdata/base); the output is their verdicts, and how our configuration differs from the
// base's. -rewrite writes what is now.
func TestVerdicts(t *testing.T) {
	met := map[*string]bool{}
	datadriven.Walk(t, "testdata/verdicts", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			before, base := imported(t, d, nil)
			b, after := imported(t, d, strings.Split(d.Input, "\n"))
			for _, p := range b.props {
				if r := b.rule(p.name); r != nil {
					for i, pattern := range r.names {
						met[&r.names[i]] = met[&r.names[i]] || fits(pattern, p.name)
					}
				}
			}
			return changes(before, b, base, after)
		})
	})
	for _, c := range chapters() {
		for _, r := range c.rules {
			for i, name := range r.names {
				if !met[&r.names[i]] {
					t.Errorf("no case in testdata/verdicts has a property %s (%s)", name, c.title)
				}
			}
		}
	}
}

// imported is a base with the lines over it: NAME=VALUE sets a property, -NAME takes one away. The
// command says which base, and its argument worker that the lines go to the worker's file.
func imported(t *testing.T, d *datadriven.TestData, lines []string) (*Result, []string) {
	t.Helper()
	base, err := os.ReadFile(filepath.Join("testdata/base", d.Cmd+".properties"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(base)
	var worker string
	if strings.HasPrefix(d.Cmd, "connect") {
		content, err := os.ReadFile("testdata/base/worker.properties")
		if err != nil {
			t.Fatal(err)
		}
		worker = string(content)
	}
	for _, line := range lines {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "-"), "=")
		gone := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `=.*\n`)
		switch {
		case line == "":
		case strings.HasPrefix(line, "-"):
			text, worker = gone.ReplaceAllString(text, ""), gone.ReplaceAllString(worker, "")
		case strings.HasPrefix(line, "connector:"):
			text += strings.TrimPrefix(line, "connector:") + "\n"
		case d.HasArg("worker"):
			worker = gone.ReplaceAllString(worker, "") + line + "\n"
		default:
			text = gone.ReplaceAllString(text, "") + line + "\n"
		}
	}
	var shared *Input
	if worker != "" {
		shared = &Input{Name: "w.properties", Content: []byte(worker)}
	}
	r, err := Import(Input{Name: "f.properties", Content: []byte(text)}, shared)
	if err != nil {
		t.Fatal(err)
	}
	if r.Count(Cannot) == 0 {
		loads(t, r)
	}
	return r, yamlLines(t, r)
}

// yamlLines are the lines of the configuration without their comments.
func yamlLines(t *testing.T, r *Result) []string {
	t.Helper()
	var out strings.Builder
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		if line, _, _ = strings.Cut(line, "  # "); !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines
}

// environment is what the variables of the cases stand for where it cannot be any text.
var environment = map[string]string{"RABBITMQ_URI": "amqp://mq", "RABBITMQ_URL": "amqp://mq", "MQ_PORT": "5673", "POSTGRES_PORT": "5432", "ACK": "5000", "QUEUE": "5"}

var (
	fileReference = regexp.MustCompile(`\$\{file:[^}]*\}`)
	// which it would read
	certificates      = regexp.MustCompile(`[&?]ssl(cert|key|rootcert)=[^&"]*|ssl(cert|key|rootcert)='[^']*'`)
	variableReference = regexp.MustCompile(`\$\{([A-Z_]+)`)
)

// loads has the relay read the configuration.
func loads(t *testing.T, r *Result) *config.Config {
	t.Helper()
	var out strings.Builder
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	var environ []string
	for _, m := range variableReference.FindAllStringSubmatch(out.String(), -1) {
		environ = append(environ, m[1]+"="+cmp.Or(environment[m[1]], "elsewhere"))
	}
	path := filepath.Join(t.TempDir(), "relay.yaml")
	text := certificates.ReplaceAllString(fileReference.ReplaceAllString(out.String(), "elsewhere"), "")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, environ)
	if err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	return c
}

// changes are the entries that the base does not have, and the lines that came and went.
func changes(before, after *Result, base, now []string) string {
	var out strings.Builder
	for _, e := range after.Entries {
		if !slices.ContainsFunc(before.Entries, func(b *Entry) bool { return *b == *e }) {
			fmt.Fprintf(&out, "%s: %s\n", e.Verdict, strings.ReplaceAll(e.Line(), " (f.properties)", ""))
		}
	}
	for _, line := range base {
		if !slices.Contains(now, line) {
			out.WriteString("- " + strings.TrimSpace(line) + "\n")
		}
	}
	for _, line := range now {
		if !slices.Contains(base, line) {
			out.WriteString("+ " + strings.TrimSpace(line) + "\n")
		}
	}
	return out.String()
}
