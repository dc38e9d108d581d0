// Reading a DebeziumServer, the resource of Debezium's operator for Kubernetes. The operator makes
// an application.properties of it, and so does this.

package read

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/magiconair/properties"
)

// fixes say what to give in the place of another resource.
var fixes = map[string]string{
	"KafkaConnector": "give its spec.config as JSON, with connector.class from spec.class",
	"KafkaConnect":   "its spec.config is the worker's: give that as a .properties file with --worker-config, beside the connector",
	"ConfigMap":      "give the application.properties or application.yaml that is in it as a file of that name",
	"Secret":         "give what is in it as a file of its own",
	"List":           "give one resource, as kubectl get KIND NAME -o yaml has it",
}

const fixPod = "give the application.properties of its container, and what env says in it (kubectl exec NAME -- env)"

// readResource finds the DebeziumServer; nil when the documents are no resources.
func readResource(file string, documents []yaml.MapSlice) (*File, error) {
	var servers []yaml.MapSlice
	other := ""
	for _, d := range documents {
		kind, _ := under(d, "kind").(string)
		switch {
		case kind == "" || under(d, "apiVersion") == nil && under(d, "spec") == nil:
		case kind == "DebeziumServer":
			servers = append(servers, d)
		default:
			other = cmp.Or(other, kind)
		}
	}
	switch {
	case len(servers) > 1:
		return nil, errors.New("holds several DebeziumServer resources; one is imported at a time")
	case len(servers) == 0 && other == "":
		return nil, nil
	case len(servers) == 0:
		return nil, fmt.Errorf("is a %s of Kubernetes; %s", other, cmp.Or(fixes[other], fixPod))
	}
	if name := propertyVariableIn(under(servers[0], "spec", "runtime")); name != "" {
		return nil, fmt.Errorf("sets the variable %s under spec.runtime; take such variables out, and give them as an env file beside it", name)
	}
	var l operatorLines
	l.spec(servers[0])
	if l.fault != nil {
		return nil, l.fault
	}
	pairs, err := ParseProperties([]byte(strings.Join(l.lines, "\n")), properties.UTF8)
	if err != nil {
		return nil, errors.New("is a DebeziumServer of which the operator could make no application.properties")
	}
	return &File{Form: Properties, File: file, Pairs: pairs}, nil
}

// operatorLines are the lines of the application.properties.
type operatorLines struct {
	lines []string
	fault error
}

func (l *operatorLines) spec(server yaml.MapSlice) {
	l.put("debezium.source.connector.class", under(server, "spec", "source", "class"))
	l.putAll("debezium.source.", under(server, "spec", "source", "config"))
	l.put("debezium.source.offset.flush.interval.ms", under(server, "spec", "source", "offset", "flushMs"))
	kind := under(server, "spec", "sink", "type")
	l.put("debezium.sink.type", kind)
	l.putAll(fmt.Sprintf("debezium.sink.%v.", kind), under(server, "spec", "sink", "config"))
	for _, part := range []string{"key", "value", "header"} {
		l.put("debezium.format."+part, under(server, "spec", "format", part, "type"))
		l.putAll("debezium.format."+part+".", under(server, "spec", "format", part, "config"))
	}
	l.putAll("quarkus.", under(server, "spec", "quarkus", "config"))
	var names []string
	transforms, _ := under(server, "spec", "transforms").([]any)
	for i, t := range transforms {
		names = append(names, fmt.Sprintf("t%d", i))
		l.component("debezium.transforms."+names[i]+".", t)
	}
	l.list("debezium.transforms", names)
	predicates, _ := under(server, "spec", "predicates").(yaml.MapSlice)
	names = nil
	for _, p := range predicates {
		names = append(names, yamlText(p.Key))
		l.component("debezium.predicates."+yamlText(p.Key)+".", p.Value)
	}
	l.list("debezium.predicates", names)
	spec, _ := under(server, "spec").(yaml.MapSlice)
	for _, item := range spec { // what is left runs it, and has its line in the report
		if name := yamlText(item.Key); !slices.Contains([]string{"source", "sink", "format", "quarkus", "transforms", "predicates"}, name) {
			l.put("spec."+name, "")
		}
	}
}

// component is a transform or a predicate.
func (l *operatorLines) component(prefix string, v any) {
	m, _ := v.(yaml.MapSlice)
	for _, option := range []string{"type", "predicate", "negate"} {
		l.put(prefix+option, under(m, option))
	}
	l.putAll(prefix, under(m, "config"))
}

func (l *operatorLines) list(name string, items []string) {
	if len(items) > 0 {
		l.put(name, strings.Join(items, ","))
	}
}

func (l *operatorLines) putAll(prefix string, config any) {
	m, ok := config.(yaml.MapSlice)
	if !ok && config != nil {
		l.fault = cmp.Or(l.fault, fmt.Errorf("has something else than properties for %s", strings.TrimSuffix(prefix, ".")))
	}
	for _, item := range m {
		l.put(prefix+yamlText(item.Key), item.Value)
	}
}

func (l *operatorLines) put(name string, v any) {
	switch v.(type) {
	case nil:
	case yaml.MapSlice, []any:
		l.fault = cmp.Or(l.fault, fmt.Errorf("%s is no single value", name))
	default:
		l.lines = append(l.lines, name+"="+yamlText(v))
	}
}

// under is what stands in a mapping under these names, one in the other; nil for nothing.
func under(m yaml.MapSlice, names ...string) any {
	for _, item := range m {
		if item.Key != names[0] {
			continue
		}
		if len(names) == 1 {
			return item.Value
		}
		inner, _ := item.Value.(yaml.MapSlice)
		return under(inner, names[1:]...)
	}
	return nil
}

// propertyVariableIn is the name of a variable, anywhere below, that is a property of Debezium's;
// "" for none.
func propertyVariableIn(v any) string {
	switch v := v.(type) {
	case yaml.MapSlice:
		if name, _ := under(v, "name").(string); IsPropertyVariable(name) {
			return name
		}
		for _, item := range v {
			if name := propertyVariableIn(item.Value); name != "" {
				return name
			}
		}
	case []any:
		for _, item := range v {
			if name := propertyVariableIn(item); name != "" {
				return name
			}
		}
	}
	return ""
}
