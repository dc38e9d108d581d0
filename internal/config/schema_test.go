package config

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	var text bytes.Buffer
	if err := Schema(&text); err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(&text)
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler() // it checks the schema against that of its draft
	if err := c.AddResource("cdc-relay.schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("cdc-relay.schema.json")
})

// schemaTakes validates a configuration file as an editor does; nil when there is nothing to say.
func schemaTakes(t *testing.T, content string) error {
	t.Helper()
	schema, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON([]byte(content))
	if err != nil {
		t.Fatalf("%v in %s", err, content)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatalf("%v in %s", err, asJSON)
	}
	return schema.Validate(value)
}

// structural matches the faults that a schema must see as well: one key or value that can be right
// nowhere.
var structural = regexp.MustCompile(`unknown (key|property|sink)|wants |want (one of [^{]|true|a whole|bytes)|is "[0-9]+", want a duration|twice$|` +
	`names no broker|has no (name|keys)|is empty, which|is set together with|are configured|` +
	`empty column name|a header without|not in this version|hhh…$`)

func TestSchemaTakesTheExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d examples, %v", len(files), err)
	}
	for _, file := range append(files, "testdata/print.yaml") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := schemaTakes(t, string(content)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// A reference may stand for any value, also inside a text or a list, and a value that YAML does not
// take for a text may.
func TestSchemaTakesWhatIsReplacedLater(t *testing.T) {
	var all strings.Builder
	for _, path := range knownPaths() {
		switch path {
		case "outbox.headers", "sink.compat.options", "sink.rabbitmq.properties", "sink.stdout", "sink.rabbitmq.url":
			continue
		}
		if !strings.HasPrefix(path, "sink.kafka.") {
			all.WriteString(nested(path, `"${FROM_ELSEWHERE:-1}"`))
		}
	}
	content := merged(t, all.String())
	if err := schemaTakes(t, content); err != nil {
		t.Errorf("references: %v", err)
	}
	for _, good := range []string{
		"source: {password: 0123, slot: yes, tables: outbox}\nsink: {stdout: }\n",
		"outbox: {headers: {tenant: true}, key: [a, b], type: \"\"}\nadmin:\n",
		"delivery: {lanes: \"8\", max_in_flight_bytes: 1048576, confirm_timeout: 1h30m0.5s}\nretry: {destination_max_age: 0}\n",
		"delivery: {max_in_flight_bytes: 16 MiB}\nsink: {kafka: {brokers: \"a:1,b\"}}\n",
		"delivery: {confirm_timeout: \"${A}s\", max_in_flight_bytes: \"${N}MiB\"}\n",
	} {
		if err := schemaTakes(t, good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}

// nested is the key alone in a file, in YAML's flow style.
func nested(path, value string) string {
	names := strings.Split(path, ".")
	return strings.Join(names, ": {") + ": " + value + strings.Repeat("}", len(names)-1) + "\n"
}

// merged is one file of many that nested has made.
func merged(t *testing.T, lines string) string {
	t.Helper()
	all := map[string]any{}
	for line := range strings.Lines(lines) {
		var one map[string]any
		if err := yaml.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		merge(all, one)
	}
	out, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func merge(into, from map[string]any) {
	for name, value := range from {
		section, isSection := value.(map[string]any)
		if old, exists := into[name].(map[string]any); isSection && exists {
			merge(old, section)
			continue
		}
		into[name] = value
	}
}

// Every key has a place with a description, and nothing else has one; the defaults, written into a
// file, are what the relay does without it.
func TestSchemaOfEveryKey(t *testing.T) {
	schema, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*jsonschema.Schema{}
	leaves("", schema, found)
	defaults := map[string]string{"rabbitmq": "", "kafka": "", "stdout": "sink: {stdout: {}}\n"}
	for _, path := range knownPaths() {
		leaf := found[path]
		if leaf == nil || leaf.Description == "" || strings.Contains(leaf.Description, "](") {
			t.Errorf("%s: there is no description to show in %+v", path, leaf)
			continue
		}
		delete(found, path)
		if leaf.Default == nil {
			continue
		}
		asYAML, err := yaml.MarshalWithOptions(*leaf.Default, yaml.Flow(true), yaml.JSON())
		if err != nil {
			t.Fatal(err)
		}
		for sink := range defaults {
			if !strings.HasPrefix(path, "sink.") || strings.HasPrefix(path, "sink."+sink+".") {
				defaults[sink] += nested(path, strings.TrimSpace(string(asYAML)))
			}
		}
	}
	for path := range found {
		t.Errorf("the schema has %s, which the loader does not know", path)
	}
	for sink, lines := range defaults {
		content := merged(t, lines)
		content = regexp.MustCompile(`(?m)^  url: ""$`).ReplaceAllString(content, "  url: postgres://h/d")
		if sink == "kafka" {
			// not together with kafka
			content = regexp.MustCompile(`(?m)^  lanes: .*\n`).ReplaceAllString(content, "")
		}
		// the default is shown
		written := strings.ReplaceAll(printed(t, mustLoad(t, content)), `"`+redacted+`"`, "guest")
		if want := printed(t, mustLoad(t, "source: {url: postgres://h/d}\nsink: {"+sink+": {}}\n")); written != want {
			t.Errorf("%s: the schema's defaults make\n%s\nthe loader's\n%s", sink, written, want)
		}
	}
}

// leaves finds the keys below s by their paths: a section has keys of its own, and is no choice
// between forms.
func leaves(path string, s *jsonschema.Schema, into map[string]*jsonschema.Schema) {
	if len(s.Properties) == 0 {
		into[path] = s
		return
	}
	for name, child := range s.Properties {
		leaves(join(path, name), child, into)
	}
}

// printed is what `config print` says, without the comments about where it comes from.
func printed(t *testing.T, c *Config) string {
	t.Helper()
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`  # .*`).ReplaceAllString(out.String(), "")
}
