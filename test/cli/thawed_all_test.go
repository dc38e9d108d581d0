//go:build testall

// A command that was frozen, as by Ctrl-Z, and goes on after others have done its work.

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
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
	eventually(t, func() string {
		if !ask[bool](r, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = $1::regclass)`, table) {
			return "it does not want the lock of " + table + " yet: " + out.String()
		}
		return ""
	})
	return cmd, out, func() { must(t, conn.Close(ctx)) }
}

// overtaken freezes a recover that has changed nothing, and has another one recover the slot, and
// a relay send row 2.
func (r *rig) overtaken() (frozen *exec.Cmd, said *lines, relay *runner.Relay) {
	r.t.Helper()
	frozen, said, release := r.stopped("outbox", "ACCESS EXCLUSIVE", "recover", "--unordered")
	must(r.t, processes.FreezePID(frozen.Process.Pid))
	release()
	r.exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted`)
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

// endFrozen waits until the server has ended what a frozen process had open, and ends its lock as
// the log says.
func (r *rig) endFrozen() {
	r.t.Helper()
	eventually(r.t, func() string {
		return ask[string](r, `SELECT coalesce(string_agg(concat_ws(' ', pid, backend_type, state, backend_xid, backend_xmin, query), E'\n'), '') FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)`)
	})
	r.exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted`)
}

// A recover that was frozen, and whose copy the server has ended, goes on after somebody has
// accepted the loss and started a relay.
func TestThawedAfterAccept(t *testing.T) {
	t.Parallel()
	r := onOwn(t, nil)
	r.losesItsSlot()
	cmd, out := r.frozenRecover("recover", "--unordered")
	r.endFrozen()
	for line := range strings.Lines(r.command("run").Stderr) {
		if _, after, found := strings.Cut(line, "cdc-relay accept "); found {
			r.ok("accept", strings.Trim(strings.Fields(after)[0], "`;,.\""), "--new-slot", "--reason", "a test")
			break
		}
	}
	relay := r.start()
	r.place("a", 3)
	wantSent(t, relay, "a", 3)
	must(t, cmd.Process.Signal(syscall.SIGCONT))
	err := cmd.Wait()
	copies := ask[int](r, `SELECT count(*) FROM cdc_relay.retry`)
	if got, _ := sentOf(t, relay, "a"); err == nil {
		t.Errorf("it ends with 0, and has copied nothing (%d copies, sent %v): %s", copies, got, out)
	}
	relay.Stop(t)
}

// The same, while the next recover is copying.
func TestThawedBesideTheNext(t *testing.T) {
	for _, how := range []string{"recover", "backfill"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := onOwn(t, nil)
			args := []string{"recover", "--unordered"}
			if how == "backfill" {
				args = []string{"init", "--backfill", "--unordered"}
				r.place("a", 1)
				r.place("a", 2)
				other := *r
				other.slot = "other"
				other.ok("init", "--no-backfill") // makes the schema
			} else {
				r.losesItsSlot()
			}
			cmd, out := r.frozenRecover(args...)
			r.endFrozen()
			next, nextOut, release := r.stopped("cdc_relay.retry", "EXCLUSIVE", args...)
			must(t, cmd.Process.Signal(syscall.SIGCONT))
			thawed := cmd.Wait()
			release()
			err := next.Wait()
			slots := ask[int](r, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, r.slot)
			t.Logf("thawed: %v: %s\nnext: %v: %s\nslots: %d, state %s", thawed, out, err, nextOut, slots, ask[string](r, `SELECT coalesce(max(state), 'none') FROM cdc_relay.slots WHERE slot = $1`, r.slot))
			if err == nil && slots == 0 {
				t.Error("the next one says that it has succeeded, and its slot is gone")
			}
		})
	}
}

// A recover that was stopped before it changed anything goes on while a relay is at work: somebody
// else has recovered the slot meanwhile.
func TestThawedBesideARelay(t *testing.T) {
	t.Parallel()
	r := onOwn(t, nil)
	r.losesItsSlot()
	cmd, out, relay := r.overtaken()
	must(t, cmd.Process.Signal(syscall.SIGCONT))
	t.Log(cmd.Wait(), out)
	t.Log(ask[string](r, `SELECT concat_ws(' ', state, epoch, leader) FROM cdc_relay.slots`), relay.Running())
	r.place("a", 3)
	eventually(t, func() string {
		if got, _ := sentOf(t, relay, "a"); len(got) < 2 && relay.Running() {
			return fmt.Sprint(got)
		}
		return ""
	})
	if !relay.Running() {
		t.Errorf("the relay was ended by a recover that had nothing to recover: %s", relay.Log())
	}
	relay.Stop(t)
	r.released()
	if said := ask[string](r, `SELECT state FROM cdc_relay.slots`); said != "ready" {
		t.Errorf("the slot is in order, and its record is in state %s: %s", said, r.command("run").Stderr)
	}
}

// The same, where the lost slot was there (a recover was killed), and the relay is just restarted:
// the slot that another recover has made is dropped with what waits in it.
func TestThawedDropsTheNextSlot(t *testing.T) {
	t.Parallel()
	r := onOwn(t, nil)
	r.losesItsSlot()
	killed, _ := r.frozenRecover("recover", "--unordered")
	must(t, killed.Process.Kill())
	_ = killed.Wait()
	eventually(t, func() string {
		if ask[bool](r, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory')`) {
			return "it still has its lock"
		}
		return ""
	})
	cmd, out, relay := r.overtaken()
	relay.Stop(t)
	r.released()
	r.place("a", 3)
	r.exec(`DELETE FROM outbox`) // as the docs allow: the WAL has it
	must(t, cmd.Process.Signal(syscall.SIGCONT))
	err := cmd.Wait()
	t.Log(err, out)
	if err == nil {
		relay = r.start()
		r.place("a", 4)
		eventually(t, func() string {
			if got, _ := sentOf(t, relay, "a"); len(got) == 0 {
				return "nothing is sent"
			}
			return ""
		})
		if got, _ := sentOf(t, relay, "a"); got[0] != 3 {
			t.Errorf("the slot was in order, and row 3 is lost: %v", got)
		}
		relay.Stop(t)
	}
}

// A recover that was frozen for some seconds in its copy, and whose lock was ended as the log says,
// commits its copy after another one has done all of it.
func TestThawedInTime(t *testing.T) {
	t.Parallel()
	r := onOwn(t, nil)
	r.losesItsSlot()
	cmd, out := r.frozenRecover("recover", "--unordered")
	r.exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted`)
	r.ok("recover", "--unordered")
	relay := r.start()
	wantSent(t, relay, "a", 2)
	r.place("a", 3)
	wantSent(t, relay, "a", 2, 3)
	must(t, cmd.Process.Signal(syscall.SIGCONT))
	err := cmd.Wait()
	t.Log(err, out, ask[string](r, `SELECT concat_ws(' ', state, epoch, incarnation, (SELECT reported FROM cdc_relay.progress), (SELECT confirmed_flush_lsn FROM pg_replication_slots)) FROM cdc_relay.slots`))
	relay.Stop(t)
	r.released()
	if err == nil {
		t.Errorf("a second recover of the same loss has succeeded: %d copies wait", ask[int](r, `SELECT count(*) FROM cdc_relay.retry`))
	}
}

// A recover that is frozen in its copy holds no transaction for long: VACUUM and the creation of
// slots wait for those. Whoever waits for it is told which session it is, and copies what it was to
// copy.
func TestFrozenRecover(t *testing.T) {
	t.Parallel()
	r := onOwn(t, nil)
	r.losesItsSlot()
	r.frozenRecover("recover", "--unordered")
	pid, log := ask[string](r, `SELECT pid::text FROM pg_locks WHERE locktype = 'advisory' AND granted`), &lines{}
	next := r.background(log, "recover", "--unordered")
	eventually(t, func() string {
		if text := log.String(); !strings.Contains(text, "SELECT pg_terminate_backend("+pid+")") {
			return "it does not say who it waits for, " + pid + ": " + text
		}
		return ""
	})
	r.endFrozen()
	must(t, next.Wait())
	relay := r.start()
	wantSent(t, relay, "a", 2)
	relay.Stop(t)
}

// A takeover that was frozen before it looked at anything, or with its copy made and not ready,
// goes on after another one has completed and a relay has sent rows.
func TestThawedTakeover(t *testing.T) {
	for name, lock := range map[string]string{
		"before it reads":   "ACCESS EXCLUSIVE",
		"before its record": "EXCLUSIVE", // which the copy does not need
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := onOwn(t, nil)
			other, runs := r.otherSlot()
			takeover := []string{"takeover", "--from-slot", other}
			if res := r.command(takeover...); res.Code != 3 {
				t.Fatalf("exit %d: %s", res.Code, res.Stderr)
			}
			r.place("b", 1)
			runs()
			ctx := await.Context(t)
			conn, err := pgx.Connect(ctx, r.db)
			must(t, err)
			_, err = conn.Exec(ctx, `BEGIN; LOCK TABLE cdc_relay.slots IN `+lock+` MODE`)
			must(t, err)
			out := &lines{}
			cmd := r.background(out, takeover...)
			eventually(t, func() string {
				if !ask[bool](r, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'cdc_relay.slots'::regclass)`) {
					return "it does not wait yet: " + out.String()
				}
				return ""
			})
			must(t, processes.FreezePID(cmd.Process.Pid))
			must(t, conn.Close(ctx))
			r.endFrozen()
			r.ok(takeover...)
			relay := r.start()
			r.place("a", 1)
			wantSent(t, relay, "a", 1)
			relay.Stop(t)
			r.released()
			before := ask[string](r, `SELECT s::text || p::text || (SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = s.slot) FROM cdc_relay.slots s JOIN cdc_relay.progress p USING (slot)`)
			must(t, cmd.Process.Signal(syscall.SIGCONT))
			err = cmd.Wait()
			t.Log(err, out)
			if after := ask[string](r, `SELECT s::text || p::text || (SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = s.slot) FROM cdc_relay.slots s JOIN cdc_relay.progress p USING (slot)`); after != before {
				t.Errorf("it has changed %s to %s", before, after)
			}
			if strings.Contains(out.String(), "pg_drop_replication_slot") {
				t.Errorf("it says that the relay's slot is to be dropped: %s", out)
			}
			relay = r.start()
			r.place("a", 2)
			wantSent(t, relay, "a", 2)
			relay.Stop(t)
		})
	}
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
