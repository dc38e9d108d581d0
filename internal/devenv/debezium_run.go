package devenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// debeziumRun is what Debezium Server and Kafka Connect have in common: one Java process that streams from one slot. Its
// methods may be called from several goroutines.
type debeziumRun struct {
	proc  *process
	dir   string
	dbURL string
	slot  string
}

var errDebeziumEnded = errors.New("debezium has ended")

// WaitStreaming returns when Debezium's slot is in use: rows committed from then on are seen. Those committed between the
// slot's creation and its use may be missed when snapshot.mode is no_data.
func (d *debeziumRun) WaitStreaming(ctx context.Context) error {
	err := poll(ctx, 50*time.Millisecond, func() (active bool, err error) {
		if !d.Running() {
			return false, errDebeziumEnded
		}
		err = onConn(ctx, d.dbURL, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active)", d.slot).Scan(&active)
		})
		return active, err
	})
	if err != nil {
		return fmt.Errorf("wait until Debezium streams from slot %s: %w: %s", d.slot, err, tail(d.Log()))
	}
	return nil
}

// Pid is the process id.
func (d *debeziumRun) Pid() int { return d.proc.pid() }

// Running reports whether the process has not ended.
func (d *debeziumRun) Running() bool { return d.proc.running() }

// Log is everything it has written.
func (d *debeziumRun) Log() string { return readLog(d.proc.logPath) }

// LogPath is the file of Log.
func (d *debeziumRun) LogPath() string { return d.proc.logPath }

// Dir is its directory, which holds offsets.dat: started again with it, Debezium goes on where it was.
func (d *debeziumRun) Dir() string { return d.dir }

// Signal sends a signal; nothing happens when the process has ended.
func (d *debeziumRun) Signal(sig os.Signal) error { return d.proc.signal(sig) }

// Kill ends it by SIGKILL and waits until it has ended.
func (d *debeziumRun) Kill() error { return d.proc.kill() }

// Stop asks it to stop by SIGTERM, by which it stores its offsets, and waits until it has ended, at most three minutes.
func (d *debeziumRun) Stop(ctx context.Context) error {
	if err := d.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return d.proc.wait(ctx)
}

// Exit waits for its end and returns the exit code; -1 when a signal ended it.
func (d *debeziumRun) Exit(ctx context.Context) (int, error) {
	if err := d.proc.wait(ctx); err != nil {
		return 0, err
	}
	return d.proc.state.ExitCode(), nil
}

// debeziumDir is the directory given, or a new one.
func debeziumDir(given, name string) (string, error) {
	if given != "" {
		return given, nil
	}
	return newDir(name)
}

func (d *debeziumRun) path(name string) string { return filepath.Join(d.dir, name) }
