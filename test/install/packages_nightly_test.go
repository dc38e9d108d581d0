//go:build nightly

// The packages and the archive on a Debian that has nothing else, without a service manager.

package install

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// The deb needs no other package. The relay that it installs delivers an event, and purge leaves
// nothing of it.
func TestDeb(t *testing.T) {
	t.Parallel()
	d := freshDebian(t, "plain")
	before := ourFiles(d)
	d.run("sh", "-c", documented(d, "README.md", "cdc-relay", ".deb"))
	if altered := d.run("dpkg", "--verify", "cdc-relay"); altered != "" {
		t.Errorf("not as in the package: %s", altered)
	}
	if got := strings.TrimSpace(d.run("stat", "--format=%a %U", "/etc/cdc-relay/credentials")); got != "700 root" {
		t.Errorf("/etc/cdc-relay/credentials is %s, want 700 root", got)
	}
	knowsItself(t, d.run("cdc-relay", "version"))
	arrivesFrom(t, d, "cdc-relay")
	d.run("dpkg", "--purge", "cdc-relay")
	if left := ourFiles(d); !slices.Equal(left, before) {
		t.Errorf("purge leaves %q, before the installation there was %q", left, before)
	}
}

// documented are the commands below a heading of a page that install a kind of file, for root's
// shell in a Debian. What they fetch from the release's page is put there from this release.
func documented(d *debian, page, heading, kind string) (script string) {
	d.t.Helper()
	for _, block := range pages.Fences(pages.Section(d.t, page, heading), "sh") {
		fetched := fetch.FindStringSubmatch(block.Text)
		if fetched == nil || !strings.HasSuffix(fetched[1], kind) {
			continue
		}
		d.copyIn(filepath.Join(dist(), fetched[1]))
		script = fetch.ReplaceAllString(block.Text, "true")
		break
	}
	if script == "" {
		d.t.Fatalf("%s, %s: no command installs a %s", page, heading, kind)
	}
	script, _, _ = strings.Cut(script, "\ncdc-relay ")
	return "set -e\n" + strings.ReplaceAll(script, "sudo ", "")
}

var fetch = regexp.MustCompile(`curl -fsSLO https://github\.com/cdc-relay/cdc-relay/releases/download/v[^/]+/(\S+)`)

// ourFiles are the paths of a Debian with our name, without the log of dpkg and what the test has
// put there.
func ourFiles(d *debian) []string {
	d.t.Helper()
	return strings.Fields(d.run("find", "/", "-xdev", "-path", "/root", "-prune", "-o", "-path", "/tmp", "-prune", "-o", "-name", "*cdc-relay*", "-print"))
}

// knowsItself checks that the relay says which release it is, of which commit and date.
func knowsItself(t *testing.T, said string) {
	t.Helper()
	want := regexp.MustCompile(`^cdc-relay v` + regexp.QuoteMeta(version(t)) + ` \([0-9a-f]{40} of \d{4}-\d\d-\d\dT`)
	if !want.MatchString(said) {
		t.Errorf("cdc-relay version says %s", said)
	}
}

// arrivesFrom has an event arrive by the quick start's commands, played in a Debian. program is how
// the relay is called there.
func arrivesFrom(t *testing.T, d *debian, program ...string) {
	t.Helper()
	w := newWay(t)
	d.write("root/cdc-relay.yaml", w.configuration(), 0o600)
	w.ends(firstEvent(w, func(args ...string) *exec.Cmd { return d.command(append(slices.Clip(program), args...)...) }))
}

// The archive has one binary that needs nothing, with the licences beside it.
func TestArchive(t *testing.T) {
	t.Parallel()
	d := freshDebian(t, "plain")
	d.run("sh", "-c", documented(d, "docs/getting-started.md", "Install", ".tar.gz"))
	knowsItself(t, d.run("cdc-relay", "version"))
	arrivesFrom(t, d, "cdc-relay")
}

// The relay of the arm64 package, run by an emulator, delivers an event.
func TestARM64(t *testing.T) {
	t.Parallel()
	d := freshDebian(t, "plain")
	emulator, err := exec.LookPath("qemu-aarch64-static")
	must(t, err)
	tool(t, "cp", emulator, d.path("usr/bin"))
	d.run("dpkg", "--force-architecture", "--install", d.copyIn(artifact(t, "cdc-relay_*_linux_arm64.deb")))
	program := []string{"qemu-aarch64-static", strings.TrimSpace(d.run("which", "cdc-relay"))}
	knowsItself(t, d.run(append(slices.Clip(program), "version")...))
	d.run(append(slices.Clip(program), "--help")...)
	arrivesFrom(t, d, program...)
}

// The rpm has the files and the scripts of the deb.
func TestRPM(t *testing.T) {
	t.Parallel()
	deb, rpm := artifact(t, "cdc-relay_*_linux_amd64.deb"), artifact(t, "cdc-relay_*_linux_amd64.rpm")
	inDeb, inRPM := directory(t, "deb"), directory(t, "rpm")
	tool(t, "dpkg-deb", "--raw-extract", deb, inDeb)
	scripts := filepath.Join(inDeb, "DEBIAN")
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		text := strings.TrimSpace(tool(t, "cat", filepath.Join(scripts, script)))
		if !strings.Contains(tool(t, "rpm", "--query", "--scripts", "--package", "--nosignature", rpm), strings.TrimSpace(strings.TrimPrefix(text, "#!/bin/sh"))) {
			t.Errorf("the rpm does not have the %s of the deb: %s", script, text)
		}
	}
	tool(t, "mv", scripts, directory(t, "scripts"))
	tool(t, "sh", "-c", `rpm2archive --nocompression - <"$0" | tar -x -C "$1"`, rpm, inRPM)
	list := func(dir string) []string {
		return strings.Split(tool(t, "sh", "-c", `cd "$0" && find . -mindepth 1 -printf '%m %y %P\n' | LC_ALL=C sort`, dir), "\n")
	}
	debFiles, rpmFiles := list(inDeb), list(inRPM)
	// Debian wants some files that others do not have, and has zsh elsewhere.
	debians := regexp.MustCompile(`usr/share/(lintian|zsh)/|/(copyright|changelog\.gz)$`)
	for _, file := range debFiles {
		if !slices.Contains(rpmFiles, file) && !strings.Contains(file, " d ") && !debians.MatchString(file) {
			t.Errorf("the rpm does not have %s", file)
		}
	}
	if len(debFiles) < 8 {
		t.Errorf("the deb has only %q", debFiles)
	}
	if config := tool(t, "rpm", "--query", "--configfiles", "--package", "--nosignature", rpm); !strings.Contains(config, "/etc/cdc-relay/cdc-relay.yaml") {
		t.Errorf("an update replaces the configuration: %q", config)
	}
}
