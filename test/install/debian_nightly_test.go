//go:build nightly

// A fresh Debian as a directory, and commands in it.

package install

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// debian is a copy of a fresh Debian, which the test has alone. It shares network and processes
// with this machine, until it is booted (systemd_nightly_test.go).
type debian struct {
	t   *testing.T
	dir string
}

// freshDebian is a debian of a kind of scripts/debian.sh: plain or systemd.
func freshDebian(t *testing.T, kind string) *debian {
	t.Helper()
	original := tool(t, filepath.Join(pages.Root(), "scripts/debian.sh"), kind)
	dir := directory(t, "debian")
	tool(t, "cp", "-a", original+"/.", dir)
	return &debian{t, dir}
}

// path is where a file of it is on this machine.
func (d *debian) path(file string) string { return filepath.Join(d.dir, file) }

// write writes a file.
func (d *debian) write(file, text string, mode os.FileMode) {
	d.t.Helper()
	must(d.t, os.WriteFile(d.path(file), []byte(text), mode))
}

// copyIn puts a file of this machine into /root, and returns its path there.
func (d *debian) copyIn(file string) string {
	d.t.Helper()
	tool(d.t, "cp", file, d.path("root"))
	return filepath.Join("/root", filepath.Base(file))
}

var environ = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
}

// command is a program of it, run as root in /root. What is mounted for it goes with it: the mounts
// are in a namespace of its own. The process id is the program's.
func (d *debian) command(args ...string) *exec.Cmd {
	const script = `mount -t proc none "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" env -C /root "$@"`
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", script, d.dir}, args...)...)
	cmd.Env = slices.Clone(environ)
	return cmd
}

// run runs a program of it, which has to succeed, and returns what it has printed.
func (d *debian) run(args ...string) string {
	d.t.Helper()
	return succeeds(d.t, d.command(args...))
}

// output runs a command to its end, and returns all that it has printed, and its exit code.
func output(t *testing.T, cmd *exec.Cmd) (string, int) {
	t.Helper()
	o, err := processes.StartOwner()
	must(t, err)
	var printed bytes.Buffer
	cmd.Env = append(cmd.Env, o.Variable)
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return printed.String(), cmd.ProcessState.ExitCode()
}

// succeeds is output of a command that has to exit with 0.
func succeeds(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	printed, code := output(t, cmd)
	if code != 0 {
		t.Fatalf("%v exits %d: %s", cmd.Args, code, printed)
	}
	return printed
}
