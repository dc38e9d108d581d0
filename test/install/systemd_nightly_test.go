//go:build nightly

// The service in a Debian whose systemd is booted.

package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// booted is a debian with a systemd that runs. It has processes and mounts of its own, and the
// network of this machine.
type booted struct {
	*debian
	systemd int    // its process id on this machine
	shipped string // the package's configuration, once configure has read it
}

// boot starts the systemd of a debian, and returns once it is up. It ends with the test, and with
// this process at the latest.
func (d *debian) boot() *booted {
	d.t.Helper()
	// A control group of its own: systemd-nspawn makes others in that.
	group := filepath.Join(tool(d.t, "findmnt", "--noheadings", "--first-only", "--types=cgroup2", "--output=TARGET"), filepath.Base(d.dir))
	must(d.t, os.Mkdir(group, 0o755))
	// systemd outlives systemd-nspawn: the watcher has to know it, too.
	o, err := processes.StartOwner()
	must(d.t, err)
	cmd := exec.Command("sh", "-c", `echo $$ >"$0/cgroup.procs" && exec systemd-nspawn "$@"`, group, "--quiet", "--boot", "--directory="+d.dir,
		"--machine="+filepath.Base(d.dir), "--register=no", "--keep-unit", "--private-users=no", "--link-journal=no", "--resolv-conf=off", "--timezone=off",
		"--console=pipe", "--setenv="+o.Variable)
	cmd.Env = append(slices.Clone(environ), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1")
	nspawn, err := processes.Start("systemd-nspawn", cmd, filepath.Join(directory(d.t, "log"), "log"))
	must(d.t, err)
	b := &booted{debian: d}
	d.t.Cleanup(func() {
		if b.systemd != 0 {
			must(d.t, syscall.Kill(b.systemd, syscall.SIGKILL))
		}
		must(d.t, nspawn.Kill())
		await.Until(d.t, "the control groups to be empty", func() bool {
			return exec.Command("find", group, "-depth", "-type", "d", "-delete").Run() == nil
		})
	})
	await.Until(d.t, "systemd to be up", func() bool {
		if !nspawn.Running() {
			d.t.Fatalf("systemd-nspawn has ended: %s", processes.ReadLog(nspawn.LogPath))
		}
		children, err := processes.ChildrenOf(nspawn.Pid())
		must(d.t, err)
		if len(children) != 1 {
			return false
		}
		b.systemd = children[0]
		state, _ := output(d.t, b.command("systemctl", "is-system-running"))
		return slices.Contains([]string{"running", "degraded"}, strings.TrimSpace(state))
	}, func() any { return processes.Tail(processes.ReadLog(nspawn.LogPath)) })
	return b
}

// command is a program in the booted system, run as root in /root.
func (b *booted) command(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{fmt.Sprintf("--target=%d", b.systemd), "--all", "env", "-C", "/root"}, args...)...)
	cmd.Env = slices.Clone(environ)
	return cmd
}

// run runs a program, which has to succeed, and returns what it has printed.
func (b *booted) run(args ...string) string {
	b.t.Helper()
	return succeeds(b.t, b.command(args...))
}

// service is what systemd says of a property of the service.
func (b *booted) service(property string) string {
	b.t.Helper()
	return strings.TrimSpace(b.run("systemctl", "show", "--value", "--property="+property, "cdc-relay"))
}

// becomes waits until the properties are so: "ActiveState=active NRestarts=1".
func (b *booted) becomes(properties string) {
	b.t.Helper()
	var last string
	await.Until(b.t, properties, func() bool {
		var now []string
		for _, want := range strings.Fields(properties) {
			name, _, _ := strings.Cut(want, "=")
			now = append(now, name+"="+b.service(name))
		}
		last = strings.Join(now, " ")
		return last == properties
	}, func() any { return last + "\n" + b.journal() })
}

// journal is what the relay and systemd have said of the service.
func (b *booted) journal() string {
	b.t.Helper()
	return b.run("journalctl", "--no-pager", "--output=cat", "--unit=cdc-relay")
}

// configure edits the configuration that the package has installed, its servers and what these do
// not have, TLS, and writes its credentials. more are further lines of the configuration.
func (b *booted) configure(w *way, more string) {
	b.t.Helper()
	const file = "etc/cdc-relay/cdc-relay.yaml"
	if b.shipped == "" {
		text, err := os.ReadFile(b.path(file))
		must(b.t, err)
		b.shipped = string(text)
	}
	text := b.shipped
	for line, ours := range map[string]string{
		"  url: postgres://":   fmt.Sprintf("  url: %q\n  slot: %[2]s\n  publication: %[2]s", w.db, w.slot),
		"    url: amqps://":    fmt.Sprintf("    url: %q", strings.Replace(w.vhost, "guest:guest@", "", 1)),
		"    username: relay":  "    username: guest",
		"    tls: {ca: ":       "    declare: true",
		"  listen: 127.0.0.1:": fmt.Sprintf("  listen: %q", w.admin),
	} {
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line) + `.*$`)
		if n := len(found.FindAllString(text, -1)); n != 1 {
			b.t.Fatalf("the configuration of the package has %d lines %q: %s", n, line, text)
		}
		text = found.ReplaceAllLiteralString(text, ours)
	}
	b.write(file, text+more, 0o644)
	for _, secret := range []string{"postgres-password", "rabbitmq-password"} {
		b.write("etc/cdc-relay/credentials/"+secret, "guest\n", 0o600)
	}
}

// prepare runs the commands before the first start, with the secrets as the page says.
func (b *booted) prepare() {
	b.t.Helper()
	var exports string
	for _, block := range pages.Fences(pages.Section(b.t, "docs/running.md", "Deploy"), "sh") {
		if strings.Contains(block.Text, "/etc/cdc-relay/credentials/") {
			exports, _, _ = strings.Cut(block.Text, "# to Kafka")
		}
	}
	if exports == "" {
		b.t.Fatal("docs/running.md does not say how commands get the secrets")
	}
	for _, args := range threeCommands(b.t) {
		if args[1] != "run" {
			b.run("bash", "-c", exports+strings.Join(args, " "))
		}
	}
}

// The service of the deb starts once it is configured, and not before. It is restarted when it
// dies, and not when its configuration is wrong. It stops in order, and goes with the package.
func TestService(t *testing.T) {
	t.Parallel()
	b := freshDebian(t, "systemd").boot()
	w := newWay(t)
	b.run("sh", "-c", documented(b.debian, "docs/getting-started.md", "Install", ".deb"))
	b.becomes("ActiveState=inactive UnitFileState=disabled NRestarts=0")
	b.run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", "cdc-relay.service")
	b.configure(w, "")
	b.prepare()
	b.run("test", "-s", "/etc/cdc-relay/credentials/operate-token") // init has made it
	b.run("systemctl", "enable", "--now", "cdc-relay")
	w.ready(nil)
	w.deliver("order")
	b.run("cdc-relay", "-c", "/etc/cdc-relay/cdc-relay.yaml", "status")

	for n, signal := range []string{"KILL", "SEGV"} {
		b.run("systemctl", "kill", "--kill-whom=main", "--signal="+signal, "cdc-relay")
		b.becomes(fmt.Sprintf("ActiveState=active NRestarts=%d", n+1))
		w.ready(nil)
		w.deliver("order")
	}

	b.run("systemctl", "stop", "cdc-relay")
	b.becomes("ActiveState=inactive Result=success ExecMainStatus=0")
	w.insert("order")
	b.configure(w, "delivery: {lane: 3}\n")
	if out, code := output(t, b.command("systemctl", "start", "cdc-relay")); code == 0 {
		t.Errorf("a service with a wrong configuration starts: %s", out)
	}
	b.becomes("ActiveState=failed SubState=failed ExecMainStatus=2 NRestarts=0")
	if said := b.journal(); !strings.Contains(said, "delivery.lane") {
		t.Errorf("the journal does not name the key: %s", said)
	}
	b.configure(w, "")
	b.run("systemctl", "start", "cdc-relay")
	w.arrives("order", w.sent)

	if said := b.run("dpkg", "--remove", "cdc-relay"); !strings.Contains(said, "slot") {
		t.Errorf("the removal does not say that the slot stays: %s", said)
	}
	b.becomes("ActiveState=inactive LoadState=not-found")
	if _, err := os.Stat(b.path("etc/cdc-relay/credentials/postgres-password")); err != nil {
		t.Errorf("the removal of the package takes secrets with it: %v", err)
	}
	if said := b.run("dpkg", "--purge", "cdc-relay"); !strings.Contains(said, "/etc/cdc-relay/credentials stay") {
		t.Errorf("purge does not say that the passwords stay: %s", said)
	}
}
