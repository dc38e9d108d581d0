//go:build nightly

// The deb over that of a version before, while the service runs.

package install

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// before is the deb with the relay that test/upgrade goes out from, a lower version, and another
// configuration file. While there is no earlier release, this is what one would be.
func before(t *testing.T, deb string) string {
	t.Helper()
	commit := regexp.MustCompile(`(?m)^[0-9a-f]{40}$`).FindString(pages.Text(t, "test/upgrade/earlier-commit"))
	content := directory(t, "before")
	tool(t, "dpkg-deb", "--raw-extract", deb, content)
	tool(t, "cp", runner.BuildAt(t, commit), filepath.Join(content, "usr/bin/cdc-relay"))
	tool(t, "sed", "-i", `s/^Version: .*/Version: 0.0.1/`, filepath.Join(content, "DEBIAN/control"))
	tool(t, "sed", "-i", `1i # The file of the version before.`, filepath.Join(content, "etc/cdc-relay/cdc-relay.yaml"))
	must(t, os.Remove(filepath.Join(content, "DEBIAN/md5sums")))
	file := filepath.Join(directory(t, "deb"), "before.deb")
	tool(t, "dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "--build", content, file)
	return file
}

// An upgrade of the package restarts the service once. What was deferred before is delivered after,
// and the administrator's configuration stays.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	deb := artifact(t, "cdc-relay_*_linux_amd64.deb")
	b := freshDebian(t, "systemd").boot()
	w := newWay(t)
	b.run("dpkg", "--install", b.copyIn(before(t, deb)))
	b.configure(w, "retry: {backoff: 100ms, max_backoff: 1s}\n# of the administrator\n")
	b.prepare()
	b.run("systemctl", "enable", "--now", "cdc-relay")
	w.ready(nil)
	w.deliver("order")
	const deferred = 20
	for range deferred {
		w.insert("invoice") // no queue takes it
	}
	await.Until(t, "the events to be deferred", func() bool { return w.number("SELECT count(*) FROM cdc_relay.retry") == deferred })
	older := b.service("MainPID")

	b.run("dpkg", "--force-confold", "--install", b.copyIn(deb))
	w.ready(nil)
	if out := b.run("cdc-relay", "version"); !strings.Contains(out, version(t)) {
		t.Errorf("the version is still %s", out)
	}
	if newer := b.service("MainPID"); newer == older {
		t.Error("the old relay still runs")
	}
	w.bind("invoice")
	for n := range deferred {
		w.arrives("invoice", w.sent-deferred+1+n)
	}
	w.deliver("order")
	b.becomes("ActiveState=active NRestarts=0")
	if starts := strings.Count(b.journal(), "Started cdc-relay"); starts != 2 {
		t.Errorf("the service was started %d times, want 2: before and after", starts)
	}
	if config := b.run("cat", "/etc/cdc-relay/cdc-relay.yaml"); !strings.HasSuffix(config, "# of the administrator\n") {
		t.Errorf("the upgrade has changed the configuration: %s", config)
	}
}
