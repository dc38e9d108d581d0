//go:build testall

// A command that was frozen, as by Ctrl-Z, and goes on after others have done its work.

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// losesItsSlot has a relay send row 1 of key a. Row 2 is not sent when the slot is lost.
func (r *rig) losesItsSlot() {
	r.t.Helper()
	relay := r.start()
	r.place("a", 1)
	wantSent(r.t, relay, "a", 1)
	relay.Stop(r.t)
	r.released()
	r.place("a", 2)
	r.exec(`SELECT pg_drop_replication_slot($1)`, r.slot)
}

// frozenRecover starts a recover, and freezes it in the middle of its copy. It returns the process
// and what it says.
func (r *rig) frozenRecover(args ...string) (*exec.Cmd, *lines) {
	r.t.Helper()
	cmd, out, release := r.stopped("cdc_relay.retry", "EXCLUSIVE", args...)
	must(r.t, processes.FreezePID(cmd.Process.Pid))
	release()
	return cmd, out
}

// stopped starts a command, which stands before the lock of a table until release is called.
func (r *rig) stopped(table, lock string, args ...string) (cmd *exec.Cmd, out *lines, release func()) {
	t := r.t
	t.Helper()
	ctx := await.Context(t)
	conn, err := pgx.Connect(ctx, r.db)
	must(t, err)
	_, err = conn.Exec(ctx, `BEGIN; LOCK TABLE `+table+` IN `+lock+` MODE`)
	must(t, err)
	out = &lines{}
	cmd = r.background(out, args...)
	becomes(r, true, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = $1::regclass)`, table)
	return cmd, out, func() { must(t, conn.Close(ctx)) }
}

// overtaken freezes a recover that has changed nothing, and has another one recover the slot, and
// a relay send row 2.
func (r *rig) overtaken() (frozen *exec.Cmd, said *lines, relay *runner.Relay) {
	r.t.Helper()
	frozen, said, release := r.stopped("outbox", "ACCESS EXCLUSIVE", "recover", "--unordered")
	must(r.t, processes.FreezePID(frozen.Process.Pid))
	release()
	r.lockEnds()
	r.ok("recover", "--unordered")
	relay = r.start()
	wantSent(r.t, relay, "a", 2)
	return frozen, said, relay
}

func (r *rig) background(out *lines, args ...string) *exec.Cmd {
	t := r.t
	t.Helper()
	file := filepath.Join(t.TempDir(), "relay.yaml")
	must(t, os.WriteFile(file, []byte(r.yaml()), 0o600))
	cmd := exec.Command(r.binary, append(args, "-c", file)...)
	cmd.Stdout, cmd.Stderr = out, out
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// sessionsEnd ends all sessions of the database, as the server does after a minute with those of a
// frozen process. TestFrozenRecover waits for that minute.
func (r *rig) sessionsEnd() {
	r.t.Helper()
	const others = ` FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`
	r.exec(`SELECT pg_terminate_backend(pid)` + others)
	eventually(r.t, func() string {
		if ask[bool](r, `SELECT EXISTS (SELECT`+others+`)`) {
			return "a session has not ended"
		}
		return ""
	})
}

// lockEnds ends the session that has the lock of the slot, as the log says.
func (r *rig) lockEnds() {
	r.t.Helper()
	r.exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// thaws lets a frozen process go on, and returns how it ends.
func (r *rig) thaws(frozen *exec.Cmd) error {
	r.t.Helper()
	must(r.t, frozen.Process.Signal(syscall.SIGCONT))
	return frozen.Wait()
}

// thawedStories are the parts of TestThawed; frozen_nightly_test.go has more.
var thawedStories = map[string]func(r *rig){
	"recover, while the next one copies":                   func(r *rig) { r.losesItsSlot(); r.thawedBesideTheNext("recover", "--unordered") },
	"recover, before it dropped a slot, after another one": (*rig).thawedDropsTheNextSlot,
	"recover, in its copy, after another one":              (*rig).thawedInTime,
	"takeover, before its record":                          func(r *rig) { r.thawedTakeover("EXCLUSIVE") },
}

// Each story is of one database. The server is theirs alone: slots are made only when no frozen
// process has a transaction there.
func TestThawed(t *testing.T) {
	t.Parallel()
	server, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true})
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	for name, story := range thawedStories {
		t.Run(name, func(t *testing.T) {
			r := on(t, server.Database(t))
			r.exec(load.OutboxTable)
			story(r)
		})
	}
}

func (r *rig) thawedBesideTheNext(args ...string) {
	cmd, out := r.frozenRecover(args...)
	r.sessionsEnd()
	next, nextOut, release := r.stopped("cdc_relay.retry", "EXCLUSIVE", args...)
	thawed := r.thaws(cmd)
	release()
	if err := next.Wait(); err == nil && !ask[bool](r, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)`, r.slot) {
		r.t.Errorf("the next one says that it has succeeded, and its slot is gone: %s; thawed: %v, %s", nextOut, thawed, out)
	}
}

// The lost slot was there (a recover was killed), and the relay is just restarted: the slot that
// another recover has made would be dropped with what waits in it.
func (r *rig) thawedDropsTheNextSlot() {
	r.losesItsSlot()
	killed, _ := r.frozenRecover("recover", "--unordered")
	must(r.t, killed.Process.Kill())
	_ = killed.Wait()
	r.sessionsEnd()
	cmd, out, relay := r.overtaken()
	relay.Stop(r.t)
	r.released()
	r.place("a", 3)
	r.exec(`DELETE FROM outbox`) // as the docs allow: the WAL has it
	_ = r.thaws(cmd)
	relay = r.start()
	r.place("a", 4)
	eventually(r.t, func() string {
		if got, _ := sentOf(r.t, relay, "a"); len(got) == 0 {
			return "nothing is sent"
		}
		return ""
	})
	if got, _ := sentOf(r.t, relay, "a"); got[0] != 3 {
		r.t.Errorf("the slot was in order, and row 3 is lost: %v; %s", got, out)
	}
	relay.Stop(r.t)
}

// It was frozen for some seconds, and its lock was ended, as the next one says: its copy would be
// committed after that one has done all of it.
func (r *rig) thawedInTime() {
	r.losesItsSlot()
	cmd, out := r.frozenRecover("recover", "--unordered")
	pid, log := ask[string](r, `SELECT pid::text FROM pg_locks WHERE locktype = 'advisory' AND granted`), &lines{}
	next := r.background(log, "recover", "--unordered")
	eventually(r.t, func() string {
		if text := log.String(); !strings.Contains(text, "SELECT pg_terminate_backend("+pid+")") {
			return "it does not say who it waits for, " + pid + ": " + text
		}
		return ""
	})
	r.lockEnds()
	must(r.t, next.Wait())
	relay := r.start()
	wantSent(r.t, relay, "a", 2)
	r.place("a", 3)
	wantSent(r.t, relay, "a", 2, 3)
	err := r.thaws(cmd)
	relay.Stop(r.t)
	r.released()
	if err == nil {
		r.t.Errorf("a second recover of the same loss has succeeded: %d copies wait; %s", ask[int](r, `SELECT count(*) FROM cdc_relay.retry`), out)
	}
}

// It has looked at nothing, or (EXCLUSIVE, which a copy does not need) its copy is made and not
// ready; another takeover has completed, and a relay has sent rows.
func (r *rig) thawedTakeover(lock string) {
	t := r.t
	other, runs := r.otherSlot()
	takeover := []string{"takeover", "--from-slot", other}
	if res := r.command(takeover...); res.Code != 3 {
		t.Fatalf("exit %d: %s", res.Code, res.Stderr)
	}
	r.place("b", 1)
	runs()
	cmd, out, release := r.stopped("cdc_relay.slots", lock, takeover...)
	must(t, processes.FreezePID(cmd.Process.Pid))
	release()
	r.sessionsEnd()
	r.ok(takeover...)
	relay := r.start()
	r.place("a", 1)
	wantSent(t, relay, "a", 1)
	relay.Stop(t)
	r.released()
	const record = `SELECT s::text || p::text || (SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = s.slot) FROM cdc_relay.slots s JOIN cdc_relay.progress p USING (slot)`
	before := ask[string](r, record)
	_ = r.thaws(cmd)
	if after := ask[string](r, record); after != before {
		t.Errorf("it has changed %s to %s", before, after)
	}
	if strings.Contains(out.String(), "pg_drop_replication_slot") {
		t.Errorf("it says that the relay's slot is to be dropped: %s", out)
	}
	relay = r.start()
	r.place("a", 2)
	wantSent(t, relay, "a", 2)
	relay.Stop(t)
	r.released()
	r.ok(append(takeover, "--drop", "--yes")...)
}

// lines is what a process has written so far.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
