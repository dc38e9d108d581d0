// Package deploycheck checks deploy/ without Docker, Kubernetes or Grafana: everything in it is
// decoded strictly by the published Go types of those who will read it, and compared with the relay
// itself. A module of its own, so that the relay's go.mod lists only what the relay needs.
package deploycheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	kubernetes "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// root is the repository's.
const root = "../.."

// bound is how long a command may take; the longest builds the relay from nothing on a loaded
// machine.
const bound = 10 * time.Minute

// relay is the binary that the Dockerfile builds, and testVersion the version it was built with. In
// make test-all it is the one that all tests have.
var (
	relay string
	given = os.Getenv("CDC_RELAY_TEST_BINARY")
)

const testVersion = "v0.0.0-deploycheck"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if relay = given; relay != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "deploycheck-")
	if err == nil {
		defer os.RemoveAll(dir)
		relay, err = buildAsInTheImage(dockerfile, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the relay as deploy/Dockerfile does:", err)
		return 1
	}
	return m.Run()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read is a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	must(t, err)
	return string(text)
}

// runs is what a command prints on both outputs, and its error.
func runs(t *testing.T, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// configuration is what the relay understands of one of its files: values by key.
func configuration(t *testing.T, name string) map[string]any {
	t.Helper()
	return understood(t, read(t, name), nil)
}

// understood is what the relay understands of a configuration with these variables: values by key.
// Secrets in files and CA certificates are replaced, as the files are where the relay runs.
func understood(t *testing.T, text string, env []string) map[string]any {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("from a file, and long enough\n"), 0o600))
	text = regexp.MustCompile(`\$\{file:[^}]*\}`).ReplaceAllLiteralString(text, "${file:"+secret+"}")
	if caPath.MatchString(text) {
		text = caPath.ReplaceAllLiteralString(text, filepath.Join(prepared(t), "relay/ca.pem"))
	}
	file := filepath.Join(t.TempDir(), "cdc-relay.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	if out, err := runs(t, env, relay, "-c", file, "config", "validate"); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, text)
	}
	out, err := runs(t, env, relay, "-c", file, "config", "print")
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, out, text)
	}
	return printedKeys(t, out)
}

// caPath is where a configuration looks for a CA certificate.
var caPath = regexp.MustCompile(`/(?:etc|run)/[a-z/-]+\.pem`)

// prepared is a directory with what compose's prepare.sh makes.
func prepared(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"postgres", "rabbitmq", "relay", "shop"} {
		must(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
	}
	if out, err := runs(t, nil, "sh", filepath.Join(root, "deploy/compose/prepare.sh"), dir); err != nil {
		t.Fatalf("prepare.sh: %v: %s", err, out)
	}
	return dir
}

// printedKeys are the values that config print shows, by key.
func printedKeys(t *testing.T, out string) map[string]any {
	t.Helper()
	var printed map[string]any
	must(t, yaml.Unmarshal([]byte(out), &printed))
	values := map[string]any{}
	flatten("", printed, values)
	return values
}

// strictly decodes YAML as Kubernetes does: a field that the type does not have, in this spelling,
// is an error.
func strictly(text []byte, into any) error {
	text, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	unknown, err := kubernetes.UnmarshalStrict(text, into)
	return errors.Join(append(unknown, err)...)
}

func flatten(path string, v any, into map[string]any) {
	m, ok := v.(map[string]any)
	if !ok {
		into[path] = v
		return
	}
	into[path] = nil // a section is a name, too
	for name, value := range m {
		flatten(strings.TrimPrefix(path+"."+name, "."), value, into)
	}
}

// port is the one of an address.
func port(t *testing.T, address any) string {
	t.Helper()
	found := regexp.MustCompile(`:(\d+)(/|$)`).FindStringSubmatch(fmt.Sprint(address))
	if found == nil {
		t.Fatalf("no port in %v", address)
	}
	return found[1]
}

func duration(t *testing.T, v any) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(fmt.Sprint(v))
	must(t, err)
	return d
}

// secretFiles are the files that a configuration reads secrets from.
func secretFiles(config string) (list []string) {
	for _, found := range regexp.MustCompile(`\$\{file:([^}]*)\}`).FindAllStringSubmatch(config, -1) {
		list = append(list, found[1])
	}
	return list
}

// bytesOf is a size in MiB or GiB.
func bytesOf(t *testing.T, size string) int64 {
	t.Helper()
	var n int64
	var unit string
	if _, err := fmt.Sscanf(size, "%d%s", &n, &unit); err != nil {
		t.Fatalf("size %q: %v", size, err)
	}
	switch unit {
	case "MiB":
		return n << 20
	case "GiB":
		return n << 30
	}
	t.Fatalf("size %q", size)
	return 0
}
