// Where the relay's time and its allocations go: profiles of a build that can take them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// buildProfiled builds the relay with testdata/profile.go next to its main, and without a trace in
// the checkout.
func buildProfiled(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find module: %w", err)
	}
	in := func(path ...string) string {
		return filepath.Join(append([]string{strings.TrimSpace(string(root))}, path...)...)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		in("cmd", "cdc-relay", "profile.go"): in("bench", "testdata", "profile.go"),
	}})
	if err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	file, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "cdc-relay")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-overlay", file, "-o", binary, in("cmd", "cdc-relay")).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build relay: %w: %s", err, out)
	}
	return binary, nil
}

// profile takes both profiles of the relay on backlogs of 200 B payloads and 12 partitions, and
// says what is in them.
func (s *kafkaStand) profile(ctx context.Context) (_ []breakdown, err error) {
	dir, err := os.MkdirTemp("", "cdc-relay-profile-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	plain := s.binary
	defer func() { s.binary = plain }()
	if err := s.warmUp(ctx); err != nil {
		return nil, err
	}
	if s.binary, err = buildProfiled(ctx, dir); err != nil {
		return nil, err
	}
	var all []breakdown
	for _, rowsPerTx := range []int{100, 1} {
		l := s.sized(runSpec{rowsPerTx: rowsPerTx, payload: 200, partitions: 12}, s.size.profile)
		s.say("profile of %s", l)
		b, err := s.profileLoad(ctx, l, filepath.Join(dir, fmt.Sprint(rowsPerTx)))
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// profileLoad takes the time with as little else as possible, and then the allocations, without
// those of a relay that relays next to nothing.
func (s *kafkaStand) profileLoad(ctx context.Context, l runSpec, dir string) (breakdown, error) {
	b := breakdown{load: l}
	take := func(name string, events int, allocations string) (string, error) {
		into := filepath.Join(dir, name)
		l.events = events
		return into, s.profileRun(ctx, l, into, allocations)
	}
	cpu, err := take("cpu", l.events, "")
	if err != nil {
		return b, err
	}
	if b.time, err = s.traces(ctx, b.load.events, "-unit=us", filepath.Join(cpu, "cpu")); err != nil {
		return b, err
	}
	start, err := take("start", l.rowsPerTx, "1")
	if err != nil {
		return b, err
	}
	some := b.load.events / 4
	all, err := take("all", some, "1")
	if err != nil {
		return b, err
	}
	b.allocations, err = s.traces(ctx, some, "-sample_index=alloc_objects", "-base="+filepath.Join(start, "allocs"), filepath.Join(all, "allocs"))
	return b, err
}

// profileRun relays a backlog and has the relay write its profiles to the directory.
func (s *kafkaStand) profileRun(ctx context.Context, l runSpec, dir, allocations string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	// The relay inherits them.
	defer func() { err = errors.Join(err, os.Unsetenv("BENCH_PROFILE"), os.Unsetenv("BENCH_ALLOCATIONS")) }()
	if err := errors.Join(os.Setenv("BENCH_PROFILE", dir), os.Setenv("BENCH_ALLOCATIONS", allocations)); err != nil {
		return fmt.Errorf("set environment: %w", err)
	}
	d := &drain{kafkaStand: s, l: l}
	if err := d.fill(ctx); err != nil {
		return err
	}
	t, err := s.newTopic(ctx, l.partitions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	relay, err := s.startRelay(s.config(t.name))
	if err != nil {
		return err
	}
	rate, err := watch(ctx, t, l.events, func() error { return alive(relay) })
	if err == nil {
		err = relay.Signal(syscall.SIGUSR1)
	}
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "done")); missing == nil {
			break
		}
		if err = waitUntil(ctx, time.Now().Add(20*time.Millisecond)); err == nil {
			err = alive(relay)
		}
	}
	if err != nil {
		return errors.Join(err, relay.Kill())
	}
	s.say("    %d events at %s", l.events, perSecond(rate))
	return s.stopRelay(relay)
}

// traces are the stacks of a profile.
func (s *kafkaStand) traces(ctx context.Context, events int, args ...string) (shares, error) {
	args = append([]string{"tool", "pprof", "-traces"}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	var why strings.Builder
	cmd.Stderr = &why
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read profile: %w: %s", err, why.String())
	}
	return readTraces(string(out), events)
}
