// Debezium in Kafka Connect.

package debeziumserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// ConnectOptions says how to start Kafka Connect with Debezium's connector.
type ConnectOptions struct {
	DB      string   // the database's address, to see whether it streams
	Brokers []string // Kafka
	// the connector's configuration: DebeziumSource's, transforms, converters
	Source map[string]string
	Worker map[string]string // more lines of the worker's properties
	Dir    string            // of an earlier one, whose offsets it takes over; "": a new one
	Java   []string          // more arguments of java, after -Xmx512m
}

// Connect is a running standalone worker of Kafka Connect with one connector, named "outbox".
type Connect struct {
	debeziumRun
	http string
}

// StartConnect is LaunchConnect until the test ends, and waits until it streams; a failed test
// shows the end of its log.
func StartConnect(t testing.TB, opt ConnectOptions) *Connect {
	t.Helper()
	c, err := LaunchConnect(opt)
	if err != nil {
		t.Fatal(err)
	}
	c.endWith(t)
	return c
}

// LaunchConnect starts a worker in a directory of its own and waits for nothing. Its REST port is a
// free one of 127.0.0.1.
func LaunchConnect(opt ConnectOptions) (*Connect, error) {
	install, err := findDebezium()
	if err != nil {
		return nil, err
	}
	dir, err := debeziumDir(opt.Dir, "connect")
	if err != nil {
		return nil, err
	}
	port, err := processes.UnusedPort()
	if err != nil {
		return nil, err
	}
	c := &Connect{debeziumRun{dir: dir, dbURL: opt.DB, slot: opt.Source["slot.name"]}, fmt.Sprintf("127.0.0.1:%d", port)}
	worker := map[string]string{
		"bootstrap.servers": strings.Join(opt.Brokers, ","),
		"listeners":         "http://" + c.http,
		// there is no default for these two
		"key.converter":                "org.apache.kafka.connect.json.JsonConverter",
		"value.converter":              "org.apache.kafka.connect.json.JsonConverter",
		"offset.storage.file.filename": c.path("offsets.dat"),
		"plugin.discovery":             "service_load", // not by a scan of all classes
		// a minute by default, which a stop may wait for
		"offset.flush.interval.ms": "5000",
	}
	maps.Copy(worker, opt.Worker)
	if err := writeJavaProperties(c.path("worker.properties"), worker); err != nil {
		return nil, err
	}
	connector, err := json.Marshal(map[string]any{"name": "outbox", "config": opt.Source})
	if err != nil {
		return nil, fmt.Errorf("write connector: %w", err)
	}
	if err := os.WriteFile(c.path("connector.json"), connector, 0o600); err != nil {
		return nil, fmt.Errorf("write connector: %w", err)
	}
	more := append([]string{"-Dlog4j2.level=INFO"}, opt.Java...)
	cmd := install.command(dir, filepath.Join(install.dir, "connect", "*"), more, "org.apache.kafka.connect.cli.ConnectStandalone",
		"worker.properties", "connector.json")
	if c.proc, err = processes.Start("Kafka Connect", cmd, c.path("log")); err != nil {
		return nil, err
	}
	return c, nil
}

// Status is what the worker's REST interface says of the connector and its task.
func (c *Connect) Status(ctx context.Context) (string, error) {
	return getText(ctx, "http://"+c.http+"/connectors/outbox/status")
}
