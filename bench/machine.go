// What the numbers were measured on.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5"
)

// machine names versions, machine and commit; broker is the broker's.
func (s *stand) machine(ctx context.Context, broker string) ([]string, error) {
	conn, err := pgx.Connect(ctx, s.db)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var postgres string
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&postgres); err != nil {
		return nil, fmt.Errorf("ask for version: %w", err)
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, fmt.Errorf("read version of kernel: %w", err)
	}
	return []string{
		fmt.Sprintf("PostgreSQL %s (fsync off), %s, %s, Linux %s", postgres, broker, runtime.Version(), strings.TrimSpace(string(kernel))),
		fmt.Sprintf("%s, %d cores, %s of memory", proc("/proc/cpuinfo", "model name"), runtime.NumCPU(), proc("/proc/meminfo", "MemTotal")),
		"commit " + commit(ctx),
	}, nil
}

// proc is the first value of a name in a file of /proc.
func proc(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// commit is that of the checkout, marked when files differ from it.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude", "*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
