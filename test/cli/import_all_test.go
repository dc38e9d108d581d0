//go:build testall

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// What import makes of a connector with the commonest properties, as JSON and as Strimzi's
// resource, and of its worker's file, runs: key, value and headers are Debezium's. Only the slot's
// name is another, and init makes it, because no Debezium runs here.
func TestImportedConnectorRuns(t *testing.T) {
	t.Parallel()
	for name, frame := range map[string][3]string{
		"connector.json": {"{\"name\": \"shop\", \"config\": {\n \"connector.class\": \"io.debezium.connector.postgresql.PostgresConnector\"", ",\n %q: %q", "}}\n"},
		"connector.yaml": {"kind: KafkaConnector\nspec:\n  class: io.debezium.connector.postgresql.PostgresConnector\n  config:\n", "    %s: '%s'\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &topical{rig: bare(t), kafka: servers.SharedKafka(t)}
			k.topic = k.kafka.Topic(t, 3)
			k.exec(`CREATE TABLE outbox_event (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb)`)
			db, err := pgx.ParseConfig(k.db)
			must(t, err)
			dir := t.TempDir()
			write := func(name, text string) string {
				path := filepath.Join(dir, name)
				must(t, os.WriteFile(path, []byte(text), 0o600))
				return path
			}
			text := frame[0]
			for _, p := range [][2]string{
				{"plugin.name", "pgoutput"},
				{"database.hostname", db.Host},
				{"database.port", fmt.Sprint(db.Port)},
				{"database.user", db.User},
				{"database.password", "${file:" + write("db.properties", "password="+db.Password+"\n") + ":password}"},
				{"database.dbname", db.Database},
				{"topic.prefix", "shop"},
				{"database.server.name", "shop"},
				{"table.include.list", "public.outbox_event"},
				{"publication.name", k.slot},
				{"transforms", "outbox"},
				{"transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"},
				{"transforms.outbox.table.field.event.key", "aggregate_id"},
				{"transforms.outbox.route.by.field", "aggregate_type"},
				{"transforms.outbox.route.topic.replacement", "${routedByValue}"},
				{"transforms.outbox.table.expand.json.payload", "true"},
				{"transforms.outbox.table.fields.additional.placement", "event_type:header:eventType"},
				{"key.converter", "org.apache.kafka.connect.storage.StringConverter"},
				{"value.converter", "org.apache.kafka.connect.json.JsonConverter"},
				{"value.converter.schemas.enable", "false"},
			} {
				text += fmt.Sprintf(frame[1], p[0], p[1])
			}
			out := filepath.Join(dir, "cdc-relay.yaml")
			run := func(config string, args ...string) {
				t.Helper()
				if res, err := runner.RunCommand(await.Context(t), k.binary, config, args...); err != nil || res.Code != 0 {
					t.Fatalf("%v: %v, exit %d: %s%s", args, err, res.Code, res.Stdout, res.Stderr)
				}
			}
			worker := write("worker.properties", "bootstrap.servers="+strings.Join(k.kafka.Brokers(), ",")+"\nkey.converter=x\nvalue.converter=x\n")
			run("", "import", "debezium", write(name, text+frame[2]), "--worker-config", worker, "-o", out)
			written, err := os.ReadFile(out)
			must(t, err)
			config := strings.NewReplacer("slot: cdc_relay ", "slot: "+k.slot+" ", "create: false", "create: true").Replace(string(written))
			run(config, "init")
			run(config, "check")
			relay := runner.Start(t, k.binary, config)
			must(t, relay.WaitReady(await.Context(t)))
			k.exec(`INSERT INTO outbox_event SELECT gen_random_uuid(), $1, 'order-'||i, 'placed', jsonb_build_object('n', i) FROM generate_series(1, 3) i`, k.topic)
			seen := map[string]bool{}
			for _, r := range k.records(k.topic, 3) {
				n := strings.TrimPrefix(string(r.Key), "order-")
				seen[n] = true
				id := ask[string](k.rig, `SELECT id::text FROM outbox_event WHERE aggregate_id = $1`, string(r.Key))
				if string(r.Value) != `{"n":`+n+`}` || r.Header("id") != id || r.Header("eventType") != "placed" {
					t.Errorf("key %s has value %s, headers %v, want id %s", r.Key, r.Value, r.Headers, id)
				}
			}
			if len(seen) != 3 {
				t.Errorf("keys %v, want three", seen)
			}
			if code := relay.Stop(t); code != 0 {
				t.Errorf("the relay exits %d", code)
			}
		})
	}
}
