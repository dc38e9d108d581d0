package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Who has no token sees what the database knows, with the fix, and has the exit code of that.
func TestStatusWithoutAToken(t *testing.T) {
	look := aRelay.take(t)
	t.Parallel()
	r := look()
	r.admin = ""
	wants := "the relay at " + r.relay.Admin() + " wants a token: set admin.socket or a token of role read in admin.tokens, docs/running.md#security"
	if out := r.ok("status", "--admin", r.relay.Admin()); !hasAll(out, []string{"state      not answering: " + wants + "; cdc-relay/" + r.slot, "The relay does not tell: " + wants, "confirmed "}) {
		t.Errorf("it says %s", out)
	}
	var v struct{ State, Why, Relay string }
	if err := json.Unmarshal([]byte(r.ok("status", "--json", "--admin", r.relay.Admin())), &v); err != nil || v.State != "not answering" || !hasAll(v.Why+v.Relay, []string{wants}) {
		t.Errorf("it says %+v, %v", v, err)
	}
}

// init makes the token files that are missing, once, after the SQL, and --print makes nothing. What
// cannot be made is exit 1, with everything else done.
func TestInitMakesTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "nowhere", "b")
	token := func(name, path string) string {
		return fmt.Sprintf("{name: %s, role: operate, value: '${file:%s}'}", name, path)
	}
	r.admin = ", tokens: [" + token("a", a) + "]"
	if out := r.ok("init", "--print"); strings.Contains(out, a) {
		t.Errorf("init --print shows %s", out)
	}
	if _, err := os.Stat(a); err == nil {
		t.Error("init --print has made a token")
	}
	r.admin = ", tokens: [" + token("b", b) + ", " + token("a", a) + "]"
	r.refused(1, "init", `create the file of admin token "b"`, "install -d -m 700", filepath.Dir(b))
	if n := left(r); n != "publications 1, schemas 1, slots 1" {
		t.Errorf("init has made %s", n)
	}
	first, err := os.ReadFile(a)
	must(t, err)
	must(t, os.Mkdir(filepath.Dir(b), 0o700))
	r.ok("init")
	r.ok("init")
	again, err := os.ReadFile(a)
	must(t, err)
	second, err := os.ReadFile(b)
	must(t, err)
	if string(again) != string(first) || len(first) != 65 || len(second) != 65 || string(first) == string(second) {
		t.Errorf("the tokens are %d, %d and %d bytes", len(first), len(again), len(second))
	}
	// check sees what the relay would
	must(t, os.Chmod(b, 0o644))
	warned := 0
	for _, f := range checked(t, r.ok("check", "--json")) {
		if f.Name == "admin tokens" && f.Level == "warn" && strings.Contains(f.Detail, "chmod o-rwx "+b) {
			warned++
		}
	}
	if warned != 1 {
		t.Errorf("%d warnings", warned)
	}
}
