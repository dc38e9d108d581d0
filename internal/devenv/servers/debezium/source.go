// The settings of Debezium's connector and sinks.

package debeziumserver

import (
	"fmt"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// DebeziumSource are the options of Debezium's PostgreSQL connector for the tables of a database,
// by the names that Kafka Connect knows them by: pgoutput, slot "debezium", publication
// "dbz_publication" of these tables, topic prefix "dbz", no snapshot, and so quick that a test need
// not wait half a second for each batch. Change what should be otherwise; Debezium Server takes
// them by DebeziumOptions.Source.
func DebeziumSource(dbURL string, tables ...string) (map[string]string, error) {
	u, err := url.Parse(dbURL)
	if err != nil {
		return nil, fmt.Errorf("read address of database: %w", err)
	}
	password, _ := u.User.Password()
	for i, table := range tables {
		if !strings.Contains(table, ".") {
			tables[i] = "public." + table
		}
	}
	return map[string]string{
		"connector.class":             "io.debezium.connector.postgresql.PostgresConnector",
		"plugin.name":                 "pgoutput",
		"database.hostname":           u.Hostname(),
		"database.port":               u.Port(),
		"database.user":               u.User.Username(),
		"database.password":           password,
		"database.dbname":             strings.TrimPrefix(u.Path, "/"),
		"topic.prefix":                "dbz",
		"slot.name":                   "debezium",
		"publication.autocreate.mode": "filtered",
		"table.include.list":          strings.Join(tables, ","),
		"snapshot.mode":               "no_data",
		"poll.interval.ms":            "10",
	}, nil
}

// EventRouter adds the Outbox Event Router to the options of a connector, with its own options
// ("route.by.field").
func EventRouter(properties, options map[string]string) {
	properties["transforms"] = "outbox"
	properties["transforms.outbox.type"] = "io.debezium.transforms.outbox.EventRouter"
	for name, value := range options {
		properties["transforms.outbox."+name] = value
	}
}

// sorted goes through a map by name.
func sorted(m map[string]string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

// DebeziumKafka are the options of Debezium Server for Kafka, with plain text for key and value.
func DebeziumKafka(brokers ...string) map[string]string {
	return map[string]string{
		"debezium.sink.type":                             "kafka",
		"debezium.sink.kafka.producer.bootstrap.servers": strings.Join(brokers, ","),
		"debezium.sink.kafka.producer.key.serializer":    "org.apache.kafka.common.serialization.StringSerializer",
		"debezium.sink.kafka.producer.value.serializer":  "org.apache.kafka.common.serialization.StringSerializer",
		"debezium.format.key":                            "simplestring",
		"debezium.format.value":                          "simplestring",
	}
}

// DebeziumRabbitMQ are the options of Debezium Server for a virtual host, with plain text for key
// and value. Exchange and routing key are still to be set.
func DebeziumRabbitMQ(vhost string) map[string]string {
	return map[string]string{
		"debezium.sink.type":                    "rabbitmq",
		"debezium.sink.rabbitmq.connection.uri": vhost,
		"debezium.format.key":                   "simplestring",
		"debezium.format.value":                 "simplestring",
	}
}
