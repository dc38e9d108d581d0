package importer

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// connector is the one whose report docs/from-debezium.md shows: it has a second transform.
const connector = `{"name": "orders-outbox", "config": {
	"connector.class": "io.debezium.connector.postgresql.PostgresConnector",
	"database.hostname": "db", "database.user": "dbz", "database.password": "${file:/etc/secrets:pw}", "database.dbname": "orders",
	"topic.prefix": "orders", "slot.name": "orders_outbox", "publication.name": "orders_pub", "plugin.name": "pgoutput",
	"table.include.list": "public.outbox", "snapshot.mode": "no_data", "heartbeat.interval.ms": "10000",
	"key.converter": "org.apache.kafka.connect.storage.StringConverter",
	"value.converter": "org.apache.kafka.connect.storage.StringConverter",
	"producer.override.bootstrap.servers": "kafka:9092", "producer.override.security.protocol": "SSL",
	"transforms": "outbox,route",
	"transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
	"transforms.outbox.table.fields.additional.placement": "type:header:eventType",
	"transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter"}}`

// The report that the page shows is the beginning of the connector's, and of the same number of
// settings; only its lines are cut otherwise.
func TestReportOnThePage(t *testing.T) {
	r, err := Import(Input{Name: "connector.json", Content: []byte(connector)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var report strings.Builder
	if err := r.Report(&report); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/from-debezium.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "$ cdc-relay import debezium connector.json -o cdc-relay.yaml\n")
	block, _, _ = strings.Cut(block, "```")
	shown, end, cut := strings.Cut(block, "\n  ...\n")
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if !cut || !strings.HasPrefix(words(report.String()), words(shown)) {
		t.Errorf("docs/from-debezium.md shows something else than this report:\n%s", report.String())
	}
	counts := fmt.Sprintf("nothing is written: %d of %d settings", r.Count(Cannot), len(r.Entries))
	if !strings.Contains(end, counts) {
		t.Errorf("docs/from-debezium.md does not say %q", counts)
	}
}
