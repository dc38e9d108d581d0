// Loading: defaults, then the file, then the environment.

package config

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

const (
	variablePrefix = "CDC_RELAY_"

	// Minimal is the least that a configuration must say.
	Minimal = "source: {url: postgres://relay@localhost:5432/shop}\nsink: {rabbitmq: {url: amqp://guest:guest@localhost:5672/}}\n"
)

// Load reads the file at path ("" for none) and the environment, as os.Environ gives it, and checks
// the whole. Its error is an *event.Stop of exit code 2 that lists every fault, each with its
// file, line and column or its variable.
//
// Every single value may contain ${VAR}, ${VAR:-default}, ${file:/path} and $$, in the file and in
// a variable. A variable is an override when its name has a double underscore:
// CDC_RELAY_SINK__RABBITMQ__URL.
func Load(path string, environ []string) (*Config, error) {
	l := newLoader(environ)
	if path != "" {
		content, err := document.ReadFile(path)
		if err != nil {
			return nil, &event.Stop{Code: event.ExitUsage, Reason: "config", What: "read configuration", Err: err}
		}
		if !l.file(path, content) {
			return nil, l.Faults.Stop()
		}
	}
	l.variables()
	if len(l.Given) == 0 && len(l.sinks) == 0 && len(l.Faults) == 0 {
		file := "no file"
		if path != "" {
			file = path + " sets nothing"
		}
		return nil, &event.Stop{
			Code: event.ExitUsage, Reason: "config",
			What: "there is no configuration: " + file + ", and no CDC_RELAY_SECTION__KEY variable",
			Fix:  "write " + cmp.Or(path, "cdc-relay.yaml") + ", to start with:\n" + Minimal,
		}
	}
	l.assign()
	l.validate()
	if err := l.Faults.Stop(); err != nil {
		return nil, err
	}
	return l.cfg, nil
}

func newLoader(environ []string) *loader {
	l := &loader{cfg: Default(), sections: map[string]sink.Settings{}}
	l.Env, l.Given = variables(environ), map[string]*document.Node{}
	for _, d := range drivers.All {
		l.sections[d.Name] = d.Settings()
	}
	l.cfg.wrote = l.Given
	return l
}

// allKeys are the keys that exist: of every sink, bound to nothing that is used.
var allKeys = sync.OnceValue(func() []setting.Key { return newLoader(nil).fields() })

// file reads the file at path. It returns false when that is no YAML, or no mapping: then nothing
// else can be checked.
func (l *loader) file(path string, content []byte) bool {
	root, faults := document.Parse(path, content)
	l.Faults = append(l.Faults, faults...)
	if root == nil {
		return false
	}
	l.section("", root)
	return root.Kind == document.Null || root.Kind == document.Mapping
}

// section takes the keys of one mapping of the file; a section without a value is one without keys.
func (l *loader) section(path string, n *document.Node) {
	if n.Kind != document.Mapping {
		if n.Kind != document.Null {
			l.Fault(n.Where, path, "wants a mapping of keys ("+strings.Join(keysIn(path), ", ")+"), has "+n.Kind.String())
			l.wrongSink = l.wrongSink || path == "sink"
		}
		return
	}
	if what := emptyFault(path); len(n.Entries) == 0 && what != "" {
		l.Fault(n.Where, path, what)
	}
	for _, e := range n.Entries {
		l.key(join(path, e.Name), e)
	}
}

func (l *loader) key(path string, e document.Entry) {
	if parent, _, _ := cutLast(path); parent == "sink" && (isSection(path) || isField(path)) {
		l.mention(path, e.Where)
	}
	switch {
	case isField(path):
		if e.Value.Kind != document.Null {
			l.Given[path] = e.Value
		}
	case isSection(path):
		l.section(path, e.Value)
	case strings.HasPrefix(path, "sink.") && strings.Count(path, ".") == 1:
		l.wrongSink = true
		near := ""
		if name := setting.Nearest(e.Name, keysIn("sink")); name != "" {
			near = ", the nearest known one is sink." + name
		}
		l.Fault(e.Where, path, "unknown sink"+near+"; "+wantSink())
	default:
		l.Fault(e.Where, path, "unknown key"+suggestKey(path))
	}
}

// variables takes the overrides of the environment.
func (l *loader) variables() {
	names := make([]string, 0, len(l.Env))
	for name := range l.Env {
		if rest, ok := strings.CutPrefix(name, variablePrefix); ok && strings.Contains(rest, "__") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		l.variable(name)
	}
}

func (l *loader) variable(name string) {
	path := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, variablePrefix), "__", "."))
	where := document.Place{Variable: name}
	known := variableOf(path) == name
	if known && strings.HasPrefix(path, "sink.") {
		l.mention(strings.Join(strings.SplitN(path, ".", 3)[:2], "."), where)
	}
	switch {
	case !known || !isField(path):
		text := "unknown override: there is no key " + path
		if near := setting.Nearest(name, knownVariables()); near != "" {
			text = "unknown override; the nearest known one is " + near
		}
		l.Fault(where, "", text)
	case fieldOf(path).FromVariable != nil:
		l.Given[path] = fieldOf(path).FromVariable(name, l.Env[name])
	default:
		l.Given[path] = document.FromVariable(name, l.Env[name], fieldOf(path).Kind)
	}
}

// mention notes that a sink is named, which is what chooses it.
func (l *loader) mention(path string, where document.Place) {
	if path == "sink.compat" {
		return
	}
	if !slices.ContainsFunc(l.sinks, func(m mention) bool { return m.path == path }) {
		l.sinks = append(l.sinks, mention{path: path, where: where})
	}
}

// assign reads every value into the configuration; the tables last, because each starts as a copy
// of the outbox section.
func (l *loader) assign() {
	for _, k := range l.fields() {
		if n, ok := l.Given[k.Name]; ok && k.Name != "source.tables" {
			k.Set(&l.Reader, k.Name, n)
		}
	}
	l.compat()
	if n, ok := l.Given["source.tables"]; ok {
		l.tables("source.tables", n)
		return
	}
	l.cfg.Source.Tables = []Table{{Schema: "public", Name: "outbox", Outbox: l.cfg.Outbox}}
}

// variables returns the environment as a map. If a name is given twice, the last one counts, as in
// the shell.
func variables(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	return env
}
