//go:build nightly

// The modules: services outside of the repository that get outbox and inbox as a release has them.

package install

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// services is a program around the two functions of the README.
//
//go:embed testdata/services.go.txt
var services string

// A new module gets the release's outbox and inbox from a proxy, and has both functions of the
// README. With the relay of go install, an order of one becomes a notification of the other.
func TestModules(t *testing.T) {
	t.Parallel()
	proxy, module, cache := directory(t, "proxy"), directory(t, "module"), directory(t, "cache")
	tool(t, filepath.Join(pages.Root(), "scripts/modules.sh"), "proxy", proxy)
	functions := pages.Fences(pages.Section(t, "README.md", "Write, relay, consume"), "go")
	if len(functions) != 2 {
		t.Fatalf("the README has %d pieces of Go", len(functions))
	}
	must(t, os.WriteFile(filepath.Join(module, "main.go"), []byte(services+functions[0].Text+functions[1].Text), 0o600))
	env := append(processes.EnvironWithout("GOFLAGS"), "GOWORK=off", "GOFLAGS=-modcacherw", "GONOSUMDB=*", "CGO_ENABLED=0", "GOMODCACHE="+cache, "GOBIN="+module,
		"GOPROXY=file://"+proxy+",file://"+tool(t, "go", "env", "GOMODCACHE")+"/cache/download,"+tool(t, "go", "env", "GOPROXY"))
	golang := func(args ...string) {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = module, slices.Clone(env)
		succeeds(t, cmd)
	}
	const ours = "github.com/cdc-relay/cdc-relay"
	golang("mod", "init", "example.org/services")
	release := "@v" + regexp.MustCompile(`(?m)^## \[(\d[^]]*)\]`).FindStringSubmatch(pages.Text(t, "CHANGELOG.md"))[1]
	golang("get", ours+"/outbox"+release, ours+"/inbox"+release)
	golang("mod", "tidy")
	golang("build", "-o", "services", ".")
	golang("install", ours+"/cmd/cdc-relay"+release)

	w := newWay(t)
	must(t, os.WriteFile(filepath.Join(module, "cdc-relay.yaml"), []byte(strings.ReplaceAll(w.configuration(), "/tmp/", module+"/")), 0o600))
	in := func(args ...string) *exec.Cmd {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env = module, append(slices.Clone(environ), "DATABASE_URL="+w.db, "AMQP_URL="+w.vhost)
		return cmd
	}
	relay := firstEvent(w, func(args ...string) *exec.Cmd { return in(append([]string{"./cdc-relay"}, args...)...) })
	running, err := processes.Start("services", in("./services"), filepath.Join(directory(t, "log"), "log"))
	must(t, err)
	must(t, running.Wait(await.Context(t)))
	if code := running.State.ExitCode(); code != 0 {
		t.Errorf("the services end with %d: %s", code, processes.ReadLog(running.LogPath))
	}
	if n := w.number("SELECT count(*) - count(DISTINCT order_id) FROM notifications WHERE order_id LIKE 'order %'"); n != 0 {
		t.Errorf("%d notifications were written twice", n)
	}
	w.ends(relay)
}
