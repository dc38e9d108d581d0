//go:build nightly

// The image without Docker: its layers in a folder, and its program run there as its configuration
// says, by the user it names, who may write nothing.

package install

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// image is one of the release's OCI layout.
type image struct {
	t      *testing.T
	root   string // the folder with its files
	config struct {
		User        string
		Env         []string
		Entrypoint  []string
		Cmd         []string
		Labels      map[string]string
		StopSignal  string
		Healthcheck struct{ Test []string }
	}
}

// descriptor names a blob of an OCI layout.
type descriptor struct {
	Digest   string
	Platform struct{ OS, Architecture string }
}

// blob is the path of a blob, whose content is that of its digest.
func blob(t *testing.T, layout string, d descriptor) string {
	t.Helper()
	path := filepath.Join(layout, "blobs", strings.ReplaceAll(d.Digest, ":", "/"))
	content, err := os.ReadFile(path)
	must(t, err)
	if sum := sha256.Sum256(content); "sha256:"+hex.EncodeToString(sum[:]) != d.Digest {
		t.Fatalf("the blob %s has other content", d.Digest)
	}
	return path
}

func decode(t *testing.T, path string, to any) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, json.Unmarshal(text, to))
}

// unpack unpacks the image for an architecture.
func unpack(t *testing.T, architecture string) *image {
	t.Helper()
	layout := filepath.Join(dist(), "image")
	path := filepath.Join(layout, "index.json")
	for {
		var document struct {
			Manifests []descriptor // of an index
			Config    descriptor   // of a manifest
			Layers    []descriptor
		}
		decode(t, path, &document)
		if len(document.Layers) > 0 {
			var configuration struct{ Config json.RawMessage }
			decode(t, blob(t, layout, document.Config), &configuration)
			i := &image{t: t, root: directory(t, "image")}
			must(t, os.Chmod(i.root, 0o755))
			must(t, json.Unmarshal(configuration.Config, &i.config))
			for _, layer := range document.Layers {
				tool(t, "tar", "-x", "-C", i.root, "-f", blob(t, layout, layer))
			}
			return i
		}
		at := slices.IndexFunc(document.Manifests, func(d descriptor) bool {
			return d.Platform.Architecture == architecture || d.Platform.Architecture == "" && len(document.Manifests) == 1
		})
		if at < 0 {
			t.Fatalf("%s has no image for %s", path, architecture)
		}
		path = blob(t, layout, document.Manifests[at])
	}
}

// command is a command of the image's entrypoint, on a root that is read-only. etc is a folder of
// this machine: /etc/cdc-relay. As Docker does, it makes the places where something is mounted.
func (i *image) command(etc string, args ...string) *exec.Cmd {
	i.t.Helper()
	for _, place := range []string{"dev", "etc/cdc-relay", "proc"} {
		must(i.t, os.MkdirAll(filepath.Join(i.root, place), 0o755))
	}
	const script = `root=$1 etc=$2 user=$3; shift 3
mount --bind "$root" "$root" && mount -o remount,bind,ro "$root" && mount --bind "$etc" "$root/etc/cdc-relay" &&
mount --rbind /dev "$root/dev" && mount -t proc none "$root/proc" &&
exec env -i CDC_RELAY_DEVENV="$CDC_RELAY_DEVENV" ${CDC_RELAY_ADMIN__LISTEN:+CDC_RELAY_ADMIN__LISTEN="$CDC_RELAY_ADMIN__LISTEN"} \
	"${@:2:$1}" /usr/sbin/chroot --userspec="$user" --groups="${user#*:}" "$root" "${@:$1+2}"`
	c := i.config
	words := slices.Concat([]string{"--mount", "bash", "-c", script, "bash", i.root, etc, c.User, strconv.Itoa(len(c.Env))}, c.Env, c.Entrypoint, args)
	cmd := exec.Command("unshare", words...)
	cmd.Env = slices.Clone(environ)
	return cmd
}

// An event arrives from the image, run as a container would be: as user 65532, with a root that
// nobody may write to, and nothing given to it but its configuration. Its health check answers, and
// its stop signal ends it with 0.
func TestImage(t *testing.T) {
	t.Parallel()
	i := unpack(t, "amd64")
	if i.config.User != "65532:65532" || i.config.StopSignal != "SIGTERM" || !slices.Equal(i.config.Cmd, []string{"run"}) {
		t.Errorf("the image's configuration is %+v", i.config)
	}
	health := i.config.Healthcheck.Test
	if len(health) < 2 || health[0] != "CMD" || health[1] != i.config.Entrypoint[0] {
		t.Fatalf("the health check is %q", health)
	}
	w := newWay(t)
	etc := directory(t, "etc")
	must(t, os.Chmod(etc, 0o755))
	// It has no folder for a socket.
	text := strings.ReplaceAll(w.configuration(), "admin: {socket: /tmp/cdc-relay.sock}\n", "")
	must(t, os.WriteFile(filepath.Join(etc, "cdc-relay.yaml"), []byte(text), 0o644))
	knowsItself(t, succeeds(t, i.command(etc, "version")))
	relay := firstEvent(w, func(args ...string) *exec.Cmd { return i.command(etc, args...) })
	succeeds(t, w.listens(i.command(etc, health[2:]...)))
	w.ends(relay)
	for file, mode := range map[string]os.FileMode{
		"LICENSE": 0o644, "THIRD-PARTY-NOTICES": 0o644, "zoneinfo.zip": 0o644, "etc/passwd": 0o644, "etc/ssl/certs/ca-certificates.crt": 0o644,
		"usr/local/bin/cdc-relay": 0o755,
	} {
		if info, err := os.Stat(filepath.Join(i.root, file)); err != nil || info.Size() == 0 || info.Mode() != mode {
			t.Errorf("the image has no %s of mode %v: %v", file, mode, err)
		}
	}
	if passwd := tool(t, "cat", filepath.Join(i.root, "etc/passwd")); !strings.HasPrefix(passwd, "relay:x:65532:65532:") {
		t.Errorf("the user of the image is %q", passwd)
	}
	const label = "org.opencontainers.image."
	if got := i.config.Labels; got[label+"version"] != version(t) || len(got[label+"revision"]) != 40 || got[label+"licenses"] != "Apache-2.0" {
		t.Errorf("the labels of the image are %q", got)
	}
}

// The image for arm64 has another program, and nothing else that differs.
func TestImageARM64(t *testing.T) {
	t.Parallel()
	amd, arm := unpack(t, "amd64"), unpack(t, "arm64")
	out, code := output(t, exec.Command("diff", "--recursive", "--brief", amd.root, arm.root))
	if lines := strings.Split(strings.TrimSpace(out), "\n"); code != 1 || len(lines) != 1 || !strings.Contains(lines[0], "/cdc-relay and ") {
		t.Errorf("they differ (%d): %s", code, out)
	}
}
