package config

import (
	"bytes"
	"fmt"
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
	`empty column name|a header without|cannot be set for one|hhh…$`)

// A reference may stand for any value, also inside a text or a list, and a value that YAML does not
// take for a text may.
func TestSchemaTakesWhatIsReplacedLater(t *testing.T) {
	for _, path := range knownPaths() {
		if path == "outbox.headers" || path == "sink.compat.options" || path == "sink.cloudevents.extensions" || path == "sink.rabbitmq.properties" || path == "sink.kafka.sasl.extensions" || path == "sink.stdout" {
			continue // mappings
		}
		names := strings.Split(path, ".")
		content := strings.Join(names, ": {") + ": \"${FROM_ELSEWHERE:-1}\"" + strings.Repeat("}", len(names)-1) + "\n"
		if err := schemaTakes(t, content); err != nil {
			t.Errorf("%s: %v", content, err)
		}
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

// Every key has a place with a description, and nothing else has one.
func TestSchemaOfEveryKey(t *testing.T) {
	schema, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*jsonschema.Schema{}
	leaves("", schema, found)
	for _, path := range knownPaths() {
		if leaf := found[path]; leaf == nil || leaf.Description == "" || strings.Contains(leaf.Description, "](") {
			t.Errorf("%s: there is no description to show in %+v", path, leaf)
		}
		delete(found, path)
	}
	for path := range found {
		t.Errorf("the schema has %s, which the loader does not know", path)
	}
	if lanes := schema.Properties["delivery"].Properties["lanes"]; lanes.Default == nil || fmt.Sprint(*lanes.Default) != "32" {
		t.Errorf("the default of delivery.lanes is %v", lanes.Default)
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
