// Package debeziumserver runs the real Debezium: Debezium Server, and Kafka Connect with its
// connector.
package debeziumserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// DebeziumOptions says how to start Debezium Server.
type DebeziumOptions struct {
	DB string // the database's address, to see whether it streams
	// DebeziumSource's: names as Kafka Connect knows them; transforms are among them
	Source map[string]string
	// everything else of application.properties by its whole name, "debezium.format.value"; wins
	Sink map[string]string
	Dir  string   // of an earlier one, whose offsets it takes over; "": a new one
	Java []string // more arguments of java, after -Xmx512m
}

// Debezium is a running Debezium Server.
type Debezium struct {
	debeziumRun
	http string
}

// StartDebezium is LaunchDebezium until the test ends, and waits until it streams; a failed test
// shows the end of its log.
func StartDebezium(t testing.TB, opt DebeziumOptions) *Debezium {
	t.Helper()
	d, err := LaunchDebezium(opt)
	if err != nil {
		t.Fatal(err)
	}
	d.endWith(t)
	return d
}

func (d *debeziumRun) endWith(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if err := d.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of Debezium %d:\n%s", d.Pid(), processes.Tail(d.Log()))
		}
	})
	ctx := context.Background()
	if err := d.WaitStreaming(ctx); err != nil {
		t.Fatal(err)
	}
}

// LaunchDebezium starts Debezium Server in a directory of its own and waits for nothing. Its HTTP
// port is a free one of 127.0.0.1.
func LaunchDebezium(opt DebeziumOptions) (*Debezium, error) {
	install, err := findDebezium()
	if err != nil {
		return nil, err
	}
	dir, err := debeziumDir(opt.Dir, "debezium")
	if err != nil {
		return nil, err
	}
	port, err := processes.UnusedPort()
	if err != nil {
		return nil, err
	}
	d := &Debezium{debeziumRun{dir: dir, dbURL: opt.DB, slot: opt.Source["slot.name"]}, fmt.Sprintf("127.0.0.1:%d", port)}
	if err := os.MkdirAll(d.path("config"), 0o755); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := writeJavaProperties(d.path("config/application.properties"), d.properties(opt, port)); err != nil {
		return nil, err
	}
	server := filepath.Join(install.dir, "server")
	classpath := filepath.Join(server, "debezium-server-dist-"+DebeziumVersion+"-runner.jar") + ":" + filepath.Join(server, "lib", "*")
	cmd := install.command(dir, classpath, opt.Java, "io.debezium.server.Main")
	if d.proc, err = processes.Start("Debezium Server", cmd, d.path("log")); err != nil {
		return nil, err
	}
	return d, nil
}

// properties are those of the file. Quarkus expands ${}: a dollar is written twice.
func (d *Debezium) properties(opt DebeziumOptions, port int) map[string]string {
	all := map[string]string{
		"quarkus.http.host":                            "127.0.0.1",
		"quarkus.http.port":                            fmt.Sprint(port),
		"quarkus.log.console.json":                     "false",
		"debezium.source.offset.storage.file.filename": d.path("offsets.dat"),
	}
	for name, value := range opt.Source {
		prefix := "debezium.source."
		if name == "transforms" || strings.HasPrefix(name, "transforms.") || strings.HasPrefix(name, "predicates") {
			prefix = "debezium."
		}
		all[prefix+name] = strings.ReplaceAll(value, "$", "$$")
	}
	for name, value := range opt.Sink {
		all[name] = strings.ReplaceAll(value, "$", "$$")
	}
	return all
}

// Healthy reports whether GET /q/health answers 200.
func (d *Debezium) Healthy(ctx context.Context) bool {
	_, err := getText(ctx, "http://"+d.http+"/q/health")
	return err == nil
}

// getText is the body of an answer 200.
func getText(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("get %s: %w", url, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("get %s: %w", url, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return string(body), fmt.Errorf("get %s: %w", url, err)
	}
	return string(body), nil
}
