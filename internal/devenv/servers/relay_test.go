package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// stand is a shell script in the relay's place.
func stand(t *testing.T, script string) string {
	path := filepath.Join(t.TempDir(), "relay")
	await.Must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755))
	return path
}

func TestRelayIsStoppedAndItsWordsAreKept(t *testing.T) {
	ctx := await.Context(t)
	r := runner.Start(t, stand(t, `trap 'echo bye >&2; exit 5' TERM
echo "$@" >&2; cat "$3" >&2; echo "admin $CDC_RELAY_ADMIN__LISTEN" >&2; echo event
while :; do sleep 0.01; done`), "sink: {}\n", "--flag")
	await.Must(t, r.WaitLog(ctx, "--flag"))
	await.Must(t, r.WaitLog(ctx, "sink: {}"))
	await.Must(t, r.WaitLog(ctx, "admin "+strings.TrimPrefix(r.Admin(), "http://")))
	await.Must(t, processes.Poll(ctx, time.Millisecond, func() (bool, error) { return r.Stdout() == "event\n", nil }))
	if rss, err := r.PeakRSS(); err != nil || rss < 100<<10 {
		t.Fatalf("peak memory %d, %v", rss, err)
	}
	await.Must(t, r.Freeze())
	await.Must(t, processes.Poll(ctx, time.Millisecond, func() (bool, error) {
		state, _ := processes.ProcStat(fmt.Sprintf("/proc/%d/stat", r.Pid()))
		return state == "T", nil
	}))
	await.Must(t, r.Thaw())
	if code := r.Stop(t); code != 5 || !strings.HasSuffix(r.Log(), "bye\n") {
		t.Fatalf("exit code %d, log %q", code, r.Log())
	}
	if rss, err := r.PeakRSS(); err != nil || rss < 100<<10 {
		t.Fatalf("peak memory after the end %d, %v", rss, err)
	}
}

func TestWaitsEndWhenTheRelayEnds(t *testing.T) {
	ctx := await.Context(t)
	r := runner.Start(t, stand(t, "echo last words >&2; exit 3"), "")
	if err := r.WaitReady(ctx); err == nil || !strings.Contains(err.Error(), "last words") {
		t.Fatalf("error is %v", err)
	}
	if err := r.WaitLog(ctx, "something else"); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Fatalf("error is %v", err)
	}
	if code, err := r.Exit(ctx); code != 3 || err != nil {
		t.Fatalf("exit code %d, %v", code, err)
	}
	killed := runner.Start(t, stand(t, "exec sleep 600"), "")
	await.Must(t, killed.Kill())
	if code, err := killed.Exit(ctx); code != -1 || err != nil || killed.Running() {
		t.Fatalf("exit code %d, %v", code, err)
	}
}

func TestRunCommand(t *testing.T) {
	res, err := runner.RunCommand(await.Context(t), stand(t, `echo "$1"; cat "$3" >&2; exit 2`), "config\n", "check")
	await.Must(t, err)
	if res != (runner.Result{Code: 2, Stdout: "check\n", Stderr: "config\n"}) {
		t.Fatalf("result is %+v", res)
	}
}
