package importer

import (
	"os"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/read"
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

// The report that the page shows is that of the connector; only its lines are cut otherwise.
func TestReportOnThePage(t *testing.T) {
	r, err := Import([]read.Input{{Name: "connector.json", Content: []byte(connector)}}, nil)
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
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if !strings.Contains(words(string(page)), words(report.String())) {
		t.Errorf("docs/from-debezium.md does not show this report:\n%s", report.String())
	}
}
