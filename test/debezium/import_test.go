package debezium

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	relay "github.com/cdc-relay/cdc-relay/internal/config"
	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer"
	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
)

// What Debezium was configured with when it made the golden records comes out of the import as the
// options under which the relay makes the same. So what the import writes is what
// TestSameAsDebezium has compared.
func TestImportOfEachConfiguration(t *testing.T) {
	t.Parallel()
	for _, g := range cases.All() {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			file, worker := configured(t, &g)
			result, err := importer.Import(file, worker)
			if err != nil {
				t.Fatal(err)
			}
			var yaml, report strings.Builder
			if err := result.Write(&yaml); err != nil {
				t.Fatal(err)
			}
			if err := result.Report(&report); err != nil {
				t.Fatal(err)
			}
			if result.Count(importer.Cannot) > 0 {
				t.Fatal(report.String())
			}
			path := filepath.Join(t.TempDir(), "cdc-relay.yaml")
			if err := os.WriteFile(path, []byte(yaml.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := relay.Load(path, []string{"POSTGRES_PASSWORD=secret", "RABBITMQ_URL=amqp://guest:guest@mq:5672/"})
			if err != nil {
				t.Fatalf("%v\n%s", err, yaml.String())
			}
			got := map[string]string{}
			for _, o := range c.Sink.Compat.Options {
				got[o.Name] = o.Value
			}
			if want := wanted(&g); c.Sink.Compat.Profile != g.Profile || !maps.Equal(got, want) {
				t.Errorf("profile %s, options %v, want %s and %v\n%s", c.Sink.Compat.Profile, got, g.Profile, want, report.String())
			}
		})
	}
}

// configured are the file, and the worker's, that configure the Debezium of a group.
func configured(t *testing.T, g *cases.Group) (importer.Input, *importer.Input) {
	t.Helper()
	source, err := debeziumserver.DebeziumSource("postgres://dbz:secret@db:5432/orders", slices.Clone(g.TableNames())...)
	if err != nil {
		t.Fatal(err)
	}
	server := map[string]string{}
	g.Connector(source, server)
	if g.Profile == cases.Connect {
		text, err := json.Marshal(map[string]any{"name": g.Name, "config": source})
		if err != nil {
			t.Fatal(err)
		}
		worker := "bootstrap.servers=k:9092\nkey.converter=org.apache.kafka.connect.json.JsonConverter\nvalue.converter=org.apache.kafka.connect.json.JsonConverter\n"
		return importer.Input{Name: "connector.json", Content: text}, &importer.Input{Name: "worker.properties", Content: []byte(worker)}
	}
	sink := debeziumserver.DebeziumKafka("k:9092")
	if g.Rabbit {
		sink = debeziumserver.DebeziumRabbitMQ("amqp://guest:guest@mq:5672/")
	}
	maps.DeleteFunc(sink, func(name, _ string) bool { return strings.HasPrefix(name, "debezium.format.") })
	maps.Copy(sink, server)
	for name, value := range source {
		if !strings.HasPrefix(name, "transforms") {
			name = "source." + name
		}
		sink["debezium."+name] = value
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sink)) {
		fmt.Fprintf(&text, "%s=%s\n", name, strings.NewReplacer(`\`, `\\`, "$", "$$").Replace(sink[name]))
	}
	return importer.Input{Name: "application.properties", Content: []byte(text.String())}, nil
}

// wanted are the options that the import should write: those of the group, the prefix, what the
// worker has, and none that does nothing.
func wanted(g *cases.Group) map[string]string {
	want := map[string]string{"topic.prefix": cases.Prefix}
	if g.Profile == cases.Connect {
		for _, role := range []string{"key.converter", "value.converter"} {
			want[role] = "org.apache.kafka.connect.json.JsonConverter"
		}
	}
	for name, value := range g.Options {
		if name != "table.field.event.type" && name != "table.op.invalid.behavior" && name != "sink.rabbitmq.routingKeyFromTopicName" && !strings.HasPrefix(name, "tracing.") {
			want[name] = value
		}
	}
	return want
}
