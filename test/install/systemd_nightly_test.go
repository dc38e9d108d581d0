//go:build nightly

// The service in a Debian whose systemd is booted.

package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	systemd int // its process id on this machine
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

// configure writes the service's configuration and its credentials, as the first lines of the unit
// have it. more are further lines of the configuration.
func (b *booted) configure(w *way, more string) {
	b.t.Helper()
	b.write("etc/cdc-relay/cdc-relay.yaml", fmt.Sprintf(`source: {url: %q, slot: %[2]s, publication: %[2]s, password: "${file:/run/credentials/cdc-relay.service/postgres-password}"}
sink:
  rabbitmq: {url: %q, username: guest, password: "${file:/run/credentials/cdc-relay.service/rabbitmq-password}", declare: true}
admin: {listen: %q, socket: /run/cdc-relay/admin.sock}
`, w.db, w.slot, strings.Replace(w.vhost, "guest:guest@", "", 1), w.admin)+more, 0o644)
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

	b.configure(w, "log: {level: debug}\n")
	b.run("systemctl", "reload", "cdc-relay")
	await.Until(t, "the configuration to be read again", func() bool { return strings.Contains(b.journal(), "configuration read again") })

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

	b.run("dpkg", "--remove", "cdc-relay")
	b.becomes("ActiveState=inactive LoadState=not-found")
	if _, err := os.Stat(b.path("etc/cdc-relay/credentials/postgres-password")); err != nil {
		t.Errorf("the removal of the package takes secrets with it: %v", err)
	}
}
