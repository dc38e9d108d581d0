// A service of the shop as a process.

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// service is order-service or notification-service. It keeps its address when it is started again.
type service struct {
	name, binary string
	env          []string

	dir  string
	port int
	proc *processes.Process
}

func (s *service) url() string { return fmt.Sprintf("http://127.0.0.1:%d", s.port) }
func (s *service) pid() int    { return s.proc.Pid() }
func (s *service) log() string { return processes.ReadLog(s.proc.LogPath) }

// start starts the service, and returns when it answers. A consumer answers when the broker
// delivers.
func (s *service) start(ctx context.Context) (err error) {
	if s.dir == "" {
		if s.dir, err = processes.NewDir(s.name); err != nil {
			return err
		}
		if s.port, err = processes.UnusedPort(); err != nil {
			return err
		}
	}
	if s.proc, err = processes.Start(s.name, s.command(), filepath.Join(s.dir, "log")); err != nil {
		return err
	}
	return s.proc.Ready(ctx, func(ctx context.Context) bool {
		text, err := s.get(ctx, "/metrics")
		return err == nil && !strings.Contains(text, "\ncdc_relay_inbox_broker_up{service=\""+s.name+"\"} 0\n")
	})
}

func (s *service) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, args...)
	cmd.Dir = s.dir
	cmd.Env = append(append(processes.EnvironWithout(processes.OwnerVariable), fmt.Sprintf("LISTEN=127.0.0.1:%d", s.port)), s.env...)
	return cmd
}

// replay runs the service's command that replays its dead letters.
func (s *service) replay(ctx context.Context) error {
	proc, err := processes.Start(s.name+" -replay", s.command("-replay"), filepath.Join(s.dir, "replay.log"))
	if err != nil {
		return err
	}
	if err := proc.Wait(ctx); err != nil {
		return err
	}
	if code := proc.State.ExitCode(); code != 0 {
		return fmt.Errorf("%s -replay: exit code %d: %s", s.name, code, processes.ReadLog(proc.LogPath))
	}
	return nil
}

// kill ends the service by SIGKILL, if it runs.
func (s *service) kill() error {
	if s.proc == nil {
		return nil
	}
	return s.proc.Kill()
}

// stop ends the service by SIGTERM, and checks that it ends well.
func (s *service) stop(ctx context.Context) error {
	if err := s.proc.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := s.proc.Wait(ctx); err != nil {
		return err
	}
	if code := s.proc.State.ExitCode(); code != 0 {
		return fmt.Errorf("%s: exit code %d: %s", s.name, code, processes.Tail(s.log()))
	}
	return nil
}

// counter is the sum of a metric's series that have a label of some value; "" for all of them.
func (s *service) counter(ctx context.Context, metric, label string) (int, error) {
	text, err := s.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, line := range regexp.MustCompile(`(?m)^`+metric+`\{([^}]*)\} (\S+)$`).FindAllStringSubmatch(text, -1) {
		if value, err := strconv.ParseFloat(line[2], 64); err == nil && strings.Contains(line[1], label) {
			sum += value
		}
	}
	return int(sum), nil
}

func (s *service) get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+path, nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", s.name, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s%s: %s", s.url(), path, resp.Status)
	}
	return string(text), err
}
