// A Debezium that runs: its log, signals and its end.

package debeziumserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// debeziumRun is what Debezium Server and Kafka Connect have in common: one Java process that
// streams from one slot. Its methods may be called from several goroutines.
type debeziumRun struct {
	proc  *processes.Process
	dir   string
	dbURL string
	slot  string
}

var errDebeziumEnded = errors.New("debezium has ended")

// WaitStreaming returns when Debezium's slot is in use: rows committed from then on are seen. Those
// committed between the slot's creation and its use may be missed when snapshot.mode is no_data.
func (d *debeziumRun) WaitStreaming(ctx context.Context) error {
	err := processes.Poll(ctx, 50*time.Millisecond, func() (active bool, err error) {
		if !d.Running() {
			return false, errDebeziumEnded
		}
		err = pgserver.OnConn(ctx, d.dbURL, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active)", d.slot).Scan(&active)
		})
		return active, err
	})
	if err != nil {
		return fmt.Errorf("wait until Debezium streams from slot %s: %w: %s", d.slot, err, processes.Tail(d.Log()))
	}
	return nil
}

// Pid is the process id.
func (d *debeziumRun) Pid() int { return d.proc.Pid() }

// Running reports whether the process has not ended.
func (d *debeziumRun) Running() bool { return d.proc.Running() }

// Log is everything it has written.
func (d *debeziumRun) Log() string { return processes.ReadLog(d.proc.LogPath) }

// LogPath is the file of Log.
func (d *debeziumRun) LogPath() string { return d.proc.LogPath }

// Dir is its directory, which holds offsets.dat: started again with it, Debezium goes on where it
// was.
func (d *debeziumRun) Dir() string { return d.dir }

// Signal sends a signal; nothing happens when the process has ended.
func (d *debeziumRun) Signal(sig os.Signal) error { return d.proc.Signal(sig) }

// Kill ends it by SIGKILL and waits until it has ended.
func (d *debeziumRun) Kill() error { return d.proc.Kill() }

// Stop asks it to stop by SIGTERM, by which it stores its offsets, and waits until it has ended, at
// most three minutes.
func (d *debeziumRun) Stop(ctx context.Context) error {
	if err := d.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return d.proc.Wait(ctx)
}

// Exit waits for its end and returns the exit code; -1 when a signal ended it.
func (d *debeziumRun) Exit(ctx context.Context) (int, error) {
	if err := d.proc.Wait(ctx); err != nil {
		return 0, err
	}
	return d.proc.State.ExitCode(), nil
}

// debeziumDir is the directory given, or a new one.
func debeziumDir(given, name string) (string, error) {
	if given != "" {
		return given, nil
	}
	return processes.NewDir(name)
}

func (d *debeziumRun) path(name string) string { return filepath.Join(d.dir, name) }
