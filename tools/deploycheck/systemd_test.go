package deploycheck

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const unitFile = "deploy/systemd/cdc-relay.service"

// installed is a copy of the unit whose binary is there.
func installed(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), filepath.Base(unitFile))
	must(t, os.WriteFile(file, []byte(strings.ReplaceAll(read(t, unitFile), "/usr/bin/cdc-relay", relay)), 0o644))
	return file
}

// systemd finds nothing wrong with the unit: no key that it does not know, no value that cannot be.
func TestSystemdVerify(t *testing.T) {
	t.Parallel()
	out, err := runs(t, nil, "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", installed(t))
	if err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("systemd-analyze verify: %v: %s", err, out)
	}
	wrong := filepath.Join(t.TempDir(), filepath.Base(unitFile))
	must(t, os.WriteFile(wrong, []byte(read(t, unitFile)+"\n[Service]\nNoSuchKey=1\n"), 0o644))
	if out, err := runs(t, nil, "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", wrong); err == nil && !strings.Contains(out, "NoSuchKey") {
		t.Errorf("systemd-analyze accepts anything: %s", out)
	}
}

// The exposure that systemd counts, from 0 (safe) to 10, stays where it is.
func TestSystemdSecurity(t *testing.T) {
	t.Parallel()
	out, err := runs(t, nil, "systemd-analyze", "security", "--offline=yes", "--threshold=15", "--no-pager", installed(t))
	if err != nil {
		t.Errorf("systemd-analyze security: %v: %s", err, out)
	}
	for key, want := range map[string]string{
		"DynamicUser": "yes", "NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "ProtectSystem": "strict", "ProtectHome": "yes",
	} {
		if got := only(t, key); got != want {
			t.Errorf("%s=%s, want %q", key, got, want)
		}
	}
}

// values are those of a key of the unit.
func values(t *testing.T, key string) (list []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(key)+`=(.*)$`).FindAllStringSubmatch(read(t, unitFile), -1) {
		list = append(list, found[1])
	}
	return list
}

func only(t *testing.T, key string) string {
	t.Helper()
	list := values(t, key)
	if len(list) != 1 {
		t.Fatalf("%s stands %d times", key, len(list))
	}
	return list[0]
}

// The unit knows the relay: its command, its exit codes, how long a stop takes, and where the
// secrets are.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	config := configuration(t, "deploy/systemd/cdc-relay.yaml")
	start := strings.Fields(only(t, "ExecStart"))
	isCommand(t, start[1:])
	if stop, least := duration(t, only(t, "TimeoutStopSec")), duration(t, config["delivery.shutdown_grace"])+10*time.Second; stop < least {
		t.Errorf("TimeoutStopSec is %s, want %s or more", stop, least)
	}
	// docs/reference.md says which codes are worth a restart.
	var never []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\d) \| [^|]* \| [^|]*(?:\|[^|]*)*?\| (yes|no:[^|]*|) ?\| [^|]*\|$`).FindAllStringSubmatch(read(t, "docs/reference.md"), -1) {
		if strings.HasPrefix(row[2], "no:") {
			never = append(never, row[1])
		}
	}
	if got := only(t, "RestartPreventExitStatus"); got != strings.Join(never, " ") || len(never) != 3 {
		t.Errorf("RestartPreventExitStatus=%s, docs/reference.md says %v", got, never)
	}
	if only(t, "Restart") != "on-failure" || only(t, "Type") != "notify" || values(t, "WatchdogSec") == nil {
		t.Error("Restart, Type or WatchdogSec")
	}
	loaded := map[string]bool{}
	for _, credential := range values(t, "LoadCredential") {
		name, _, _ := strings.Cut(credential, ":")
		loaded["/run/credentials/"+filepath.Base(unitFile)+"/"+name] = true
	}
	comments := regexp.MustCompile(`(?m)^ *#.*$`)
	secrets := secretFiles(comments.ReplaceAllString(read(t, "deploy/systemd/cdc-relay.yaml"), ""))
	for _, file := range secrets {
		if !loaded[file] {
			t.Errorf("%s is no credential: %v", file, loaded)
		}
	}
	if len(secrets) != len(loaded) || len(secrets) == 0 {
		t.Errorf("credentials %v, used are %v", loaded, secrets)
	}
	// A credential without a file keeps the service from starting, unless there is a default: what
	// delivery does not depend on has an empty one.
	if empty := values(t, "SetCredential"); !slices.Equal(empty, []string{`operate-token:\n`}) {
		t.Errorf("SetCredential=%q", empty)
	}
	environment := strings.Join(values(t, "Environment"), " ")
	if !strings.Contains(environment, "CDC_RELAY_CONFIG=/etc/cdc-relay/cdc-relay.yaml") || !strings.Contains(read(t, unitFile), "systemd/cdc-relay.yaml /etc/cdc-relay/cdc-relay.yaml") {
		t.Errorf("Environment=%s", environment)
	}
	soft := regexp.MustCompile(`GOMEMLIMIT=(\w+)`).FindStringSubmatch(environment)
	if soft == nil || bytesOf(t, soft[1]) > bytesOf(t, only(t, "MemoryMax")+"iB")*85/100 {
		t.Errorf("GOMEMLIMIT is %v, MemoryMax %s", soft, only(t, "MemoryMax"))
	}
}
