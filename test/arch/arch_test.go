// Package arch proves the arrows of the house: which package may import which.
//
//	cmd -> cli -> wiring -> {replication, relay, retry, ops, config} -> {decode, sink/*, dlq, tracing, debezium} -> sink -> event
//	outbox; inbox/{rabbit, kafka} -> inbox
package arch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cdc-relay/cdc-relay"

// allowed lists, for every package below internal/, the packages below internal/ that its non-test
// files may import. An entry of its own goes before that of a tree. A package that is not listed is
// a fault: decide where it stands.
var allowed = map[string][]string{
	"lazy":                {}, // everybody may import it
	"secretfile":          {}, // and this one
	"event":               {},
	"kafkaclient/...":     {"kafkaclient/..."}, // a module of its own: inbox has it, too
	"decode":              {"event"},
	"sink":                {"event", "config/setting"},
	"sink/drivers":        {"sink", "sink/kafka", "sink/rabbit", "sink/stdout"},
	"sink/kafka":          {"event", "sink", "config/setting", "kafkaclient"},
	"sink/rabbit":         {"event", "sink", "config/setting", "sink/rabbit/conn"},
	"sink/rabbit/conn":    {"sink", "kafkaclient/socket"},
	"sink/stdout":         {"event", "sink", "config/setting"},
	"sink/cloudevents":    {"event", "sink", "config/setting"},
	"debezium":            {"event", "sink", "debezium/..."},
	"debezium/...":        {"event", "debezium/..."},
	"migrate/...":         {"debezium/...", "migrate/...", "config/setting"},
	"sink/sinktest":       {"event", "sink", "devenv/..."},
	"sink/sinktest/spool": {"event", "sink", "config/setting"},
	// The floors of replication, from the ground up; check, setup and repair are commands beside
	// the stream.
	"replication/source":  {"sent", "event", "decode", "guard", "kafkaclient/socket"},
	"replication/schema":  {"sent", "event", "decode", "replication/source"},
	"replication/slot":    {"sent", "event", "decode", "guard", "replication/source", "replication/schema"},
	"replication/session": {"sent", "event", "decode", "kafkaclient/socket", "replication/source", "replication/schema", "replication/slot"},
	"replication":         {"event", "decode", "replication/source", "replication/schema", "replication/slot", "replication/session"},
	"replication/setup":   {"sent", "event", "decode", "replication/source", "replication/schema", "replication/slot"},
	// what a slot does not send goes to the retry table, as the stream and the retry writer would
	// have it
	"replication/repair":          {"sent", "event", "decode", "dlq", "sink", "retry/store", "retry/postgres", "replication/source", "replication/slot", "replication/schema"},
	"replication/check":           {"sent", "event", "decode", "guard", "replication/source", "replication/schema", "replication/slot"},
	"replication/replicationtest": {"sent", "event"},
	"relay/inflight":              {"event", "sink", "retry/store"},
	"relay/order":                 {"event", "sink", "retry/store", "relay/inflight"},
	"guard":                       {"event"},
	"relay":                       {"sent", "event", "decode", "sink", "guard", "retry/store", "relay/inflight", "relay/order"},
	"sent":                        {},
	"retention":                   {"sent", "event", "dlq"},
	"dlq":                         {"sent", "event", "sink"},
	"retry/store":                 {"event", "sink", "dlq"},
	// postgres, and memorytest
	"retry/...":      {"sent", "event", "sink", "dlq", "retry/store"},
	"retry":          {"event", "sink", "relay", "relay/inflight", "relay/order", "dlq", "retry/store"},
	"config":         {"event", "decode", "guard", "sink", "sink/cloudevents", "sink/drivers", "debezium", "config/setting"},
	"config/setting": {"event"},
	"ops":            {},
	"printable":      {},
	"ops/opstest":    {"ops"},
	"ops/metrics":    {"ops", "event", "decode", "sink"},
	"ops/admin":      {"printable", "ops", "ops/metrics", "event", "dlq", "sink/drivers"},
	"ops/console":    {},
	"tracing":        {"event"},
	"devenv/...":     {"event", "devenv/..."}, // it judges the relay from outside
	"wiring":         {"sent", "event", "decode", "sink", "relay", "replication", "replication/...", "retention", "dlq", "ops", "ops/...", "config", "config/setting", "tracing", "printable"},
	// compare reads both brokers, as a tool: it has Debezium's side too, which no sink knows.
	"cli/compare": {"event", "kafkaclient", "sink", "sink/kafka", "sink/rabbit", "sink/rabbit/conn", "config", "config/...", "wiring", "cli/..."},
	"cli/...":     {"event", "sink", "sink/drivers", "debezium/...", "migrate/...", "replication", "replication/...", "retry", "retry/...", "dlq", "ops", "ops/...", "config", "config/...", "wiring", "printable", "cli/..."},
}

// public lists, for every package that users import, the packages of ours that its non-test files
// may import. Only what guards against brokers is below internal/: what a program of a user is
// built of changes only with a reason.
var public = map[string][]string{
	"outbox":             {},
	"outbox/outboxtest":  {"outbox"},
	"inbox":              {"inbox/internal/..."},
	"inbox/inboxtest":    {"inbox"},
	"inbox/rabbit":       {"inbox", "inbox/internal/..."},
	"inbox/kafka":        {"inbox", "inbox/internal/...", "internal/kafkaclient"},
	"inbox/internal/...": {},
	"inbox/test/...":     {},
}

// pureBans are what decode may not import: it has no I/O and no goroutines (source_test.go looks
// for clocks).
var pureBans = []string{"net/...", "os/...", "io/fs", "log/...", "context", "sync/...", "syscall"}

// testOnly must not be linked into the binary.
var testOnly = []string{
	"testing/...", module + "/internal/devenv/...", module + "/internal/ops/opstest", module + "/internal/sink/sinktest/...", module + "/internal/kafkaclient/kafkatest", module + "/internal/retry/memorytest", module + "/internal/replication/replicationtest", module + "/test/...",
	"github.com/prometheus/client_golang/api/...", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/cockroachdb/datadriven", "github.com/HdrHistogram/...",
	"github.com/santhosh-tekuri/jsonschema/...", "github.com/creack/pty/...",
}

// pkg is what go list says of a package.
type pkg struct {
	ImportPath, Name                         string
	Imports, TestImports, XTestImports, Deps []string
}

func TestArrows(t *testing.T) {
	pkgs := list(t)
	if len(pkgs) < 5 {
		t.Fatalf("go list found %d packages, want the whole module", len(pkgs))
	}
	for _, fault := range faults(pkgs) {
		t.Error(fault)
	}
}

// list asks go list for all packages of the workspace; -e, so that an import cycle is named by its
// offending import too.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-tags", strings.Join(tiers, ","), "-json=ImportPath,Name,Imports,TestImports,XTestImports,Deps", "work")
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

// faults names every import that breaks a rule.
func faults(pkgs []pkg) []string {
	var found []string
	report := func(p pkg, imported, rule string) {
		found = append(found, fmt.Sprintf("%s imports %s: %s", strings.TrimPrefix(p.ImportPath, module+"/"), imported, rule))
	}
	for _, p := range pkgs {
		name, internal := strings.CutPrefix(p.ImportPath, module+"/internal/")
		may, known := rule(allowed, name)
		if internal && !known {
			found = append(found, fmt.Sprintf("internal/%s has no rule: add it to allowed in test/arch", name))
		}
		mayPublic, known := rule(public, strings.TrimPrefix(p.ImportPath, module+"/"))
		if isPublic(p.ImportPath) && !known {
			found = append(found, fmt.Sprintf("%s has no rule: add it to public in test/arch", p.ImportPath))
		}
		for _, imp := range p.Imports {
			target, ours := strings.CutPrefix(imp, module+"/internal/")
			if internal && ours && target != "lazy" && target != "secretfile" && !matches(target, may) {
				report(p, "internal/"+target, "not below it; it may import "+strings.Join(may, ", "))
			}
			if rest, ours := strings.CutPrefix(imp, module+"/"); ours && isPublic(p.ImportPath) && !matches(rest, mayPublic) {
				report(p, rest, "users import it; of ours it may import ["+strings.Join(mayPublic, ", ")+"]")
			}
			if isPublic(imp) && internal && !matches(name, []string{"devenv/..."}) {
				report(p, strings.TrimPrefix(imp, module+"/"), "the relay uses nothing of what services use")
			}
			if name == "decode" && matches(imp, pureBans) {
				report(p, imp, "decode is pure")
			}
			// devenv/servers asks a Prometheus server.
			if name != "ops/metrics" && name != "devenv/servers" && !forServices(p.ImportPath) && strings.HasPrefix(imp, "github.com/prometheus/") {
				report(p, imp, "only internal/ops/metrics knows prometheus")
			}
			if name != "tracing" && !forServices(p.ImportPath) && strings.HasPrefix(imp, "go.opentelemetry.io/otel") {
				report(p, imp, "only internal/tracing knows OpenTelemetry")
			}
		}
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if strings.HasPrefix(imp, module+"/cmd/") {
				report(p, imp, "nobody imports cmd")
			}
		}
		if p.Name == "main" && strings.HasPrefix(p.ImportPath, module+"/cmd/") {
			for _, dep := range p.Deps {
				if matches(dep, testOnly) {
					report(p, dep, "linked into the binary, but for tests only")
				}
			}
		}
	}
	return found
}

// isPublic reports whether users import a package.
func isPublic(path string) bool {
	return matches(path, []string{module + "/outbox/...", module + "/inbox/..."})
}

// forServices reports whether a package is used in services, or is one: it has their metrics and
// spans.
func forServices(path string) bool {
	return isPublic(path) || matches(path, []string{module + "/examples/..."})
}

// rule is the entry of a list for a package: its own, else that of the nearest "parent/...".
func rule(list map[string][]string, name string) (may []string, known bool) {
	if may, known = list[name]; known {
		return may, true
	}
	for pattern, may := range list {
		if matches(name, []string{pattern}) {
			return may, true
		}
	}
	return nil, false
}

// matches reports whether one of the patterns names the path. As for the go command, "a/..." is a
// and all below it.
func matches(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		parent, tree := strings.CutSuffix(pattern, "/...")
		return path == pattern || tree && strings.HasPrefix(path+"/", parent+"/")
	})
}
