package cli

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

// configured is a configuration with a token at each path.
func configured(t *testing.T, paths ...string) *config.Config {
	t.Helper()
	var tokens []string
	for i, path := range paths {
		tokens = append(tokens, "t"+string(rune('a'+i))+":operate:${file:"+path+"}")
	}
	c, err := config.Load("", []string{"CDC_RELAY_SOURCE__URL=postgres://h/d", "CDC_RELAY_SINK__STDOUT={}", "CDC_RELAY_ADMIN__TOKENS=" + strings.Join(tokens, ",")})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A token is made once, for its owner alone; what is there is never touched, whatever it is.
func TestTokenFilesAreCreated(t *testing.T) {
	dir := t.TempDir()
	made, kept, properties := filepath.Join(dir, "made"), filepath.Join(dir, "kept"), filepath.Join(dir, "several.properties")
	link := filepath.Join(dir, "link")
	for _, err := range []error{os.WriteFile(kept, nil, 0o640), os.Symlink(filepath.Join(dir, "elsewhere"), link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// the last is where nobody writes
	c := configured(t, made, kept, link, properties+":token", "/proc/version")
	core, logs := observer.New(zap.InfoLevel)
	for range 2 {
		if err := createTokenFiles(c, zap.New(core)); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSuffix(string(content), "\n")
	if raw, err := hex.DecodeString(token); err != nil || len(raw) != 32 {
		t.Errorf("the token is %q", token)
	}
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if value, err := c.Admin.Tokens[0].Read(); err != nil || value != token {
		t.Errorf("the relay reads %q, %v", value, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("%v, %v: want nothing more than made, kept and link", entries, err)
	}
	if content, err := os.ReadFile(kept); err != nil || len(content) != 0 {
		t.Errorf("the file that was there has %q, %v", content, err)
	}
	if logs.Len() != 1 || logs.All()[0].ContextMap()["path"] != made || strings.Contains(logs.All()[0].Message+logs.All()[0].ContextMap()["token"].(string), token) {
		t.Errorf("logged: %v", logs.All())
	}
}

// One that cannot be made is named with its fix, and keeps no other from being made. Where there is
// no directory, who starts the relay may bring the file: that is no failure.
func TestTokenFileThatCannotBeCreated(t *testing.T) {
	dir := t.TempDir()
	made := filepath.Join(dir, "made")
	core, logs := observer.New(zap.WarnLevel)
	err := createTokenFiles(configured(t, filepath.Join(dir, "missing", "a"), filepath.Join(dir, strings.Repeat("b", 300)), made), zap.New(core))
	if err == nil || !strings.Contains(err.Error(), `create the file of admin token "tb"`) || strings.Contains(err.Error(), `"ta"`) {
		t.Errorf("got %v", err)
	}
	if logs.Len() != 1 {
		t.Fatalf("logged: %v", logs.All())
	}
	warned, want := logs.All()[0].ContextMap()["error"].(string), `create the file of admin token "ta"`
	if fix := "install -d -m 700 -o USER " + filepath.Join(dir, "missing"); !strings.Contains(warned, want) || !strings.Contains(warned, fix) {
		t.Errorf("warned of %s, want %q and %q", warned, want, fix)
	}
	if _, err := os.Stat(made); err != nil {
		t.Error(err)
	}
}
