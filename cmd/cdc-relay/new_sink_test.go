package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest/spool"
)

func TestMain(m *testing.M) { servers.Main(m) }

// A sink that the relay does not know: one line registers it.
func init() { drivers.All = append(drivers.All, spool.Driver()) }

// TestNewSink relays a row to the new sink, which has its keys, its flag and its name everywhere.
func TestNewSink(t *testing.T) {
	emptyDirectory(t)
	db := servers.SharedPostgres(t).Database(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	exec := func(sql string) {
		t.Helper()
		c, err := pgx.Connect(await.Context(t), db)
		must(err)
		defer c.Close(context.Background())
		_, err = c.Exec(await.Context(t), sql)
		must(err)
	}
	must(os.Mkdir("spool", 0o700))
	exec(load.OutboxTable)
	slot := fmt.Sprintf("new_sink_%d", os.Getpid())
	writeFile(t, "cdc-relay.yaml", fmt.Sprintf("source: {url: '%s', slot: %s, publication: %s}\nsink: {spool: {directory: spool}}\nadmin: {listen: 127.0.0.1:0}\n", db, slot, slot))
	if code, stdout, stderr := commandLine(t, "config", "print"); code != 0 || !strings.Contains(stdout, "spool:\n    directory: spool") {
		t.Errorf("config print: exit %d, %s%s", code, stdout, stderr)
	}
	done := make(chan string, 1)
	go func() {
		code, _, stderr := commandLine(t, "run")
		done <- fmt.Sprintf("exit %d %s", code, stderr)
	}()

	await.Until(t, "the slot", func() bool {
		var is bool
		conn, err := pgx.Connect(await.Context(t), db)
		must(err)
		defer conn.Close(context.Background())
		must(conn.QueryRow(await.Context(t), `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active)`, slot).Scan(&is))
		select {
		case ended := <-done:
			t.Fatal(ended)
		default:
		}
		return is
	})
	exec(`INSERT INTO outbox VALUES ('6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10', 'order', 'k', 't', '{"n": 1}')`)
	await.Until(t, "the row", func() bool {
		text, err := os.ReadFile("spool/order")
		return err == nil && strings.Contains(string(text), `"ID":"6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10","Key":"k"`) && strings.HasSuffix(string(text), "\n")
	})
	must(syscall.Kill(os.Getpid(), syscall.SIGTERM))
	if end := <-done; end != "exit 0 " {
		t.Errorf("the relay ended with %s", end)
	}
}
