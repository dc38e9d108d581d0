package deploycheck

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// Exit 2 is usage and is not restarted, and Go ends so over a crash or an abort, too. Under what
// each sample sets the relay ends by a signal instead, which systemd restarts.
func TestCrashIsNotUsage(t *testing.T) {
	t.Parallel()
	never := strings.Fields(only(t, "RestartPreventExitStatus"))
	for name, set := range tracebacks(t) {
		// the watchdog's, and a fault in the process
		for _, by := range []syscall.Signal{syscall.SIGABRT, syscall.SIGSEGV} {
			t.Run(fmt.Sprint(name, " ", by), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(context.Background(), bound)
				defer cancel()
				cmd := exec.CommandContext(ctx, relay, "run")
				cmd.Env = append(set, "CDC_RELAY_SOURCE__URL=postgres://u@127.0.0.1:1/d", "CDC_RELAY_SINK__STDOUT={}", "CDC_RELAY_ADMIN__LISTEN=127.0.0.1:0")
				log, err := cmd.StderrPipe()
				must(t, err)
				must(t, cmd.Start())
				read := bufio.NewReader(log)
				_, err = read.ReadString('\n')
				must(t, err)
				must(t, cmd.Process.Signal(by))
				stacks, err := io.ReadAll(read)
				must(t, err)
				_ = cmd.Wait()
				status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
				if !ok || !status.Signaled() || slices.Contains(never, fmt.Sprint(status.ExitStatus())) {
					t.Errorf("with %v a crash ends with %v, of which RestartPreventExitStatus has %v", set, cmd.ProcessState, never)
				}
				if !strings.Contains(string(stacks), "goroutine ") {
					t.Errorf("it does not say where it was: %s", stacks)
				}
			})
		}
	}
}

// tracebacks is the part of each sample's environment that decides how a crash ends.
func tracebacks(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{"systemd": regexp.MustCompile(`GOTRACEBACK=\S+`).FindAllString(strings.Join(values(t, "Environment"), " "), -1)}
	list, _, err := stages(dockerfile)
	must(t, err)
	all["the image"] = nil
	for _, command := range list[1].Commands {
		if env, ok := command.(*instructions.EnvCommand); ok {
			for _, v := range env.Env {
				if v.Key == "GOTRACEBACK" {
					all["the image"] = append(all["the image"], v.String())
				}
			}
		}
	}
	all["Kubernetes"] = []string{"GOTRACEBACK=" + env(container(t, podOf(t, "deploy/kubernetes/rabbitmq.yaml")), "GOTRACEBACK")}
	for name, s := range composed(t, "kafka").Services {
		if s.Image != "cdc-relay" {
			continue
		}
		all["compose "+name] = nil
		if v := s.Environment["GOTRACEBACK"]; v != nil {
			all["compose "+name] = []string{"GOTRACEBACK=" + *v}
		}
		if s.Init == nil || !*s.Init {
			t.Errorf("compose %s: the relay is PID 1, which no signal of its own ends: a crash is exit 2", name)
		}
	}
	return all
}
