// Loading: defaults, then the file, then the environment.

package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/cloudevents"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

const (
	variablePrefix = "CDC_RELAY_"

	// Minimal is a configuration to start with: source and sink are the least that one must say.
	Minimal = "source: {url: postgres://relay@localhost:5432/shop}\nsink: {rabbitmq: {url: amqp://guest:guest@localhost:5672/}}\n" +
		"admin: {socket: /tmp/cdc-relay.sock}\n"
)

// Load reads the file at path ("" for none) and the environment, as os.Environ gives it, and checks
// the whole. Config.NotRead has sentences about settings that are no fault, but most likely a
// mistake. Its error is an *event.Stop of exit code 2 that lists every fault, each with its file,
// line and column or its variable.
//
// Every single value may contain ${VAR}, ${VAR:-default}, ${file:/path} and $$, in the file and in
// a variable. A variable is an override when its name has a double underscore:
// CDC_RELAY_SINK__RABBITMQ__URL.
func Load(path string, environ []string) (*Config, error) {
	l := newLoader(environ)
	if path != "" {
		content, err := setting.ReadFile(path)
		if err != nil {
			return nil, &event.Stop{Code: event.ExitUsage, Reason: "config", What: "read configuration", Err: err}
		}
		if !l.file(path, content) {
			return nil, l.Faults.Stop()
		}
	}
	l.variables()
	almost := l.almostOverrides()
	if len(almost) == 0 && len(l.Given) == 0 && len(l.sinks) == 0 && len(l.Faults) == 0 {
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
	if len(l.Faults) > 0 {
		l.Faults = append(l.Faults, almost...) // most likely the cause
		return nil, l.Faults.Stop()
	}
	for _, f := range almost {
		l.cfg.NotRead = append(l.cfg.NotRead, f.Error())
	}
	return l.cfg, nil
}

func newLoader(environ []string) *loader {
	l := &loader{cfg: Default(), sections: map[string]sink.Settings{}}
	l.Env, l.Given = variables(environ), map[string]*setting.Node{}
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
	root, faults := setting.Parse(path, content)
	l.Faults = append(l.Faults, faults...)
	if root == nil {
		return false
	}
	l.section("", root)
	return root.Kind == setting.Null || root.Kind == setting.Mapping
}

// section takes the keys of one mapping of the file; a section without a value is one without keys.
func (l *loader) section(path string, n *setting.Node) {
	if n.Kind != setting.Mapping {
		if n.Kind != setting.Null {
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

func (l *loader) key(path string, e setting.Entry) {
	if parent, _, _ := cutLast(path); parent == "sink" && (isSection(path) || isField(path)) {
		l.mention(path, e.Where)
	}
	switch {
	case isField(path):
		if e.Value.Kind != setting.Null {
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

// almostOverrides says of each variable that has one underscore in the place of two which key it
// would be. It may be meant for something else, so it is no fault of a configuration that is good.
func (l *loader) almostOverrides() (almost []*setting.Fault) {
	meant := map[string]string{}
	for _, known := range knownVariables() {
		meant[strings.ReplaceAll(known, "__", "_")] = known
	}
	for _, name := range slices.Sorted(maps.Keys(l.Env)) {
		if known := meant[name]; known != "" && known != name {
			almost = append(almost, &setting.Fault{Where: setting.Place{Variable: name}, What: "is not read; the variable of this key is " + known})
		}
	}
	return almost
}

func (l *loader) variable(name string) {
	path := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, variablePrefix), "__", "."))
	where := setting.Place{Variable: name}
	known := variableOf(path) == name
	if known && strings.HasPrefix(path, "sink.") {
		if section := strings.Join(strings.SplitN(path, ".", 3)[:2], "."); isSection(section) || isField(section) {
			l.mention(section, where)
		} else {
			l.wrongSink = true // a fault already
		}
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
		l.Given[path] = setting.FromVariable(name, l.Env[name], fieldOf(path).Kind)
	}
}

// mention notes that the configuration names a sink: naming it chooses it.
func (l *loader) mention(path string, where setting.Place) {
	if path == "sink.compat" || path == cloudevents.Section {
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

// loader gathers what the file and the variables say, gives it to the fields, and collects the
// faults.
type loader struct {
	setting.Reader
	cfg      *Config
	sections map[string]sink.Settings // of the sinks, by name
	sinks    []mention                // of the file, then of variables, each once

	wrongSink bool // the file names a sink that does not exist, which is a fault already
}

type mention struct {
	path  string
	where setting.Place
}

func (m mention) driver() *sink.Driver { return drivers.ByName(strings.TrimPrefix(m.path, "sink.")) }

// column reads a column name, or a list of them: the first that the row has, not NULL, is used. ""
// means not mapped.
func (l *loader) column(path string, n *setting.Node) Column {
	c := Column{Written: true}
	for _, item := range n.Values() {
		name, ok := l.Scalar(path, item)
		switch {
		case !ok:
		case name == "" && n.Kind == setting.List:
			l.Fault(item.Where, path, "has an empty column name in its list")
		case name != "" && slices.Contains(c.Names, name):
			l.Fault(item.Where, path, fmt.Sprintf("has column %q twice", name))
		case name != "":
			c.Names = append(c.Names, name)
		}
	}
	return c
}

const maxHeaderName = 255 // bytes: the limit of AMQP 0-9-1. Kafka has none

func (l *loader) checkHeader(name string) error {
	ours := sink.ReservedHeaders
	for _, m := range l.sinks {
		ours = slices.Concat(m.driver().Reserved, ours)
	}
	switch {
	case name == "":
		return fmt.Errorf("has a header without a name")
	case len(name) > maxHeaderName:
		return fmt.Errorf("is longer than %d bytes, the most a header's name may have", maxHeaderName)
	case slices.Contains(ours, name):
		return fmt.Errorf("is a header that the relay writes or reserves (%s); choose another name", strings.Join(ours, ", "))
	}
	return nil
}

// validateTemplate refuses a template that names a part of the event that no column is mapped to.
// Columns that it names itself are looked for in the tables, at the start.
func (l *loader) validateTemplate(path string, t sink.Template) {
	for _, table := range l.cfg.Source.Tables {
		l.validateUses(path, t, table.Outbox, "column of "+table.String())
	}
	if l.cfg.Source.MessagePrefix != "" {
		l.validateUses(path, t, l.cfg.Outbox, "member of messages")
	}
}

// validateUses compares the template with one mapping; what describes the mapping.
func (l *loader) validateUses(path string, t sink.Template, o Outbox, what string) {
	where := l.PlaceOf(path)
	mapped := map[string]Column{"aggregate": o.Aggregate, "key": o.Key, "type": o.Type}
	for _, part := range t.Uses() {
		if column, ok := mapped[part]; !ok || column.Mapped() {
			continue
		}
		if where == (setting.Place{}) {
			where = l.PlaceOf("outbox." + part) // the template is the default, so that was written
		}
		l.Fault(where, path, fmt.Sprintf("%q uses {%s}, but no %s is mapped to it; map one in the outbox section, or write the template without it", t, part, what))
	}
}

// Names of keys and variables, and suggestions for misspelt ones.

func fieldOf(path string) *setting.Key {
	for i, k := range allKeys() {
		if k.Name == path {
			return &allKeys()[i]
		}
	}
	return nil
}

func isField(path string) bool { return fieldOf(path) != nil }

// isSection is true for a path that has keys under it.
func isSection(path string) bool {
	return slices.ContainsFunc(allKeys(), func(k setting.Key) bool { return strings.HasPrefix(k.Name, path+".") })
}

// emptyFault says why the section at path must not be empty; "": it may be.
func emptyFault(path string) string {
	for _, k := range allKeys() {
		if section, _, _ := cutLast(k.Name); section == path && k.SectionFault != "" {
			return k.SectionFault
		}
	}
	return ""
}

// variableOf is the name of the variable that overrides the key at path.
func variableOf(path string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
}

// knownPaths is every path that may be written: fields, in the order of `config print`.
func knownPaths() []string {
	var paths []string
	for _, k := range allKeys() {
		paths = append(paths, k.Name)
	}
	return paths
}

func knownVariables() []string {
	names := knownPaths()
	for i, path := range names {
		names[i] = variableOf(path)
	}
	return names
}

// suggestKey names the key that an unknown one probably means: the nearest of its section. If there
// is no near one, it names all keys of the section, and the keys of other sections that have this
// name.
func suggestKey(path string) string {
	section, name, _ := cutLast(path)
	siblings := keysIn(section)
	if near := setting.Nearest(name, siblings); near != "" {
		return ", the nearest known one is " + join(section, near)
	}
	said := "; known here are " + strings.Join(siblings, ", ")
	var elsewhere []string
	for _, known := range knownPaths() {
		if _, leaf, nested := cutLast(known); nested && leaf == name {
			elsewhere = append(elsewhere, known)
		}
	}
	if len(elsewhere) > 0 {
		said += "; elsewhere there is " + strings.Join(elsewhere, " and ")
	}
	return said
}

// keysIn returns the names that a section may have.
func keysIn(section string) []string {
	var names []string
	for _, known := range knownPaths() {
		rest, inside := strings.CutPrefix(known, join(section, ""))
		if name, _, _ := strings.Cut(rest, "."); inside && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// join puts a name under a section; the file itself is the section "".
func join(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}

// cutLast splits a path before its last name.
func cutLast(path string) (section, name string, nested bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}
