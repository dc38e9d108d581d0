//go:build testall

// The consumers as processes.

package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// process is one consumer that runs.
type process struct {
	*processes.Process
	job     job
	reached chan struct{} // closed when it stops at its point
	in      io.WriteCloser
}

func start(t *testing.T, j job) *process {
	t.Helper()
	text, err := json.Marshal(j)
	await.Must(t, err)
	self, err := os.Executable()
	await.Must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	p := &process{job: j, reached: make(chan struct{})}
	p.in, err = cmd.StdinPipe()
	await.Must(t, err)
	out, err := cmd.StdoutPipe()
	await.Must(t, err)
	dir, err := processes.NewDir("consumer")
	await.Must(t, err)
	p.Process, err = processes.Start("consumer", cmd, filepath.Join(dir, "log"))
	await.Must(t, err)
	go func() {
		if bufio.NewScanner(out).Scan() {
			close(p.reached)
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		if p.Running() {
			await.Must(t, p.Kill())
		}
		if t.Failed() {
			t.Logf("consumer %s, %s:\n%s", j.Service, j.Point, processes.ReadLog(p.LogPath))
		}
	})
	return p
}

// letGo has it leave its point.
func (p *process) letGo(t *testing.T) {
	t.Helper()
	_, err := fmt.Fprintln(p.in)
	await.Must(t, err)
}

// stop ends it in order.
func (p *process) stop(t *testing.T) {
	t.Helper()
	await.Must(t, p.Signal(syscall.SIGTERM))
	await.Must(t, p.Wait(t.Context()))
	if !p.State.Success() {
		t.Errorf("the consumer %s ended with %v", p.job.Service, p.State)
	}
}
