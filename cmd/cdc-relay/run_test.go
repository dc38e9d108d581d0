package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest/spool"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// Destinations paused by the line and by the sink are listed, each once, the longest first.
func TestPausedOfLineAndSink(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := func(destination string, minutes int) ops.Paused {
		return ops.Paused{Destination: destination, Since: noon.Add(time.Duration(-minutes) * time.Minute)}
	}
	s := ops.Snapshot{Paused: []ops.Paused{at("a", 1), at("b", 3)}}
	addPaused(&s, []ops.Paused{at("a", 9), at("c", 2)})
	if want := []ops.Paused{at("b", 3), at("c", 2), at("a", 1)}; !slices.Equal(s.Paused, want) || s.PausedTotal != 3 {
		t.Errorf("got %v of %d, want %v", s.Paused, s.PausedTotal, want)
	}
	var many []ops.Paused
	for i := range 30 {
		many = append(many, at(string(rune('A'+i)), i))
	}
	addPaused(&s, many)
	if len(s.Paused) != maxPaused || s.PausedTotal != 33 || s.Paused[0].Destination != many[29].Destination {
		t.Errorf("%d of %d are named, from %s on", len(s.Paused), s.PausedTotal, s.Paused[0].Destination)
	}
}

// Each loop of the retry table is watched under its own name, and /healthz asks for it.
func TestLoopsAreWatched(t *testing.T) {
	emptyDirectory(t)
	c, err := config.Load("", []string{"CDC_RELAY_SOURCE__URL=postgres://h/d", "CDC_RELAY_SINK__STDOUT={}"})
	if err != nil {
		t.Fatal(err)
	}
	v := newProcess(c, command.Build{}, &wiring.RecentLog{})
	v.watchdog = newWatchdog(time.Minute)
	stuck := func() (names []string) {
		for _, beat := range v.watchdog.all() {
			if why := beat.Stuck(time.Now().Add(2 * time.Minute)); why != "" {
				names = append(names, why)
			}
		}
		return names
	}
	hooks := retryTableConfig(c, v, nil, source.Term{}, zap.NewNop()).Hooks
	for _, loop := range []struct {
		hook func(bool)
		of   *ops.Heartbeat
	}{{hooks.Writer, v.watchdog.writer}, {hooks.Feeder, v.watchdog.feeder}, {hooks.Stats, v.watchdog.stats}} {
		loop.hook(true)
		if got := stuck(); len(got) != 1 || loop.of.Stuck(time.Now().Add(2*time.Minute)) == "" {
			t.Errorf("one is at work: %q", got)
		}
		loop.hook(false)
		if got := stuck(); len(got) != 0 {
			t.Errorf("none is at work: %q", got)
		}
	}
}

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
