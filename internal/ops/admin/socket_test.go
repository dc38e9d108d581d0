package admin

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// bySocket is a client of the socket at path.
func bySocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

// untilServed waits until the socket answers.
func untilServed(t *testing.T, path string) int {
	t.Helper()
	code := 0
	await.Until(t, "the socket answers", func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://relay/api/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := bySocket(path).Do(request)
		if err == nil {
			_ = answer.Body.Close()
			code = answer.StatusCode
		}
		return err == nil
	})
	return code
}

// Whoever runs the relay needs no token on its host.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, func(c *Config) { c.Socket, c.Tokens = path, nil })
	if code := untilServed(t, path); code != 200 {
		t.Errorf("the socket answers %d", code)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
}

// Without admin.listen the socket is the only way, and the port of the metrics has none of the API.
func TestNoPort(t *testing.T) {
	path, metrics := filepath.Join(t.TempDir(), "s"), ""
	address := serve(t, func(c *Config) { c.Listen, c.Socket, c.MetricsListen = "", path, "127.0.0.1:0" }, func(s *Server) { metrics = "http://" + s.metrics.Addr().String() })
	if code := untilServed(t, path); code != 200 || address != "http://" {
		t.Errorf("the socket answers %d, the port is %q", code, address)
	}
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 200, "/api/v1/status": 404} {
		if code, _ := ask(t, http.MethodGet, metrics+path, asOps, nil); code != want {
			t.Errorf("%s answers %d, want %d", path, code, want)
		}
	}
	path = filepath.Join(t.TempDir(), "alone")
	serve(t, func(c *Config) { c.Listen, c.Socket = "", path })
	if code := untilServed(t, path); code != 200 {
		t.Errorf("the socket alone answers %d", code)
	}
}

// Any other user has no right, should the file's mode let it in.
func TestPeers(t *testing.T) {
	for uid, want := range map[int]rights{0: operator, os.Geteuid(): operator, -1: nobody, 65534: nobody} {
		if got := (peer{uid}).caller(); got.may != want || (want == nobody) != (got.who == "") {
			t.Errorf("uid %d has %+v, want %v", uid, got, want)
		}
	}
}

// A path that another relay uses, or that is no socket, is left alone; one on which nobody listens
// is replaced. The relay goes on in each case, and takes the path when it is free.
func TestSocketPaths(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: at("stale"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	if l, err := listenSocket(at("stale")); err != nil {
		t.Errorf("the socket of a killed relay is in the way: %v", err)
	} else {
		_ = l.Close()
	}
	if err := os.WriteFile(at("file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("file"), at("link")); err != nil {
		t.Fatal(err)
	}
	live, err := listenSocket(at("live"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"file": "exists and is not a socket: remove it", "link": "exists and is not a socket: remove it",
		"live": "another process listens", "no/dir": "the directory of", strings.Repeat("x", 300): "name too long",
	} {
		if _, err := listenSocket(at(name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if content, err := os.ReadFile(at("file")); string(content) != "kept" {
		t.Errorf("the file has %q, %v", content, err)
	}
	_ = live.Close()
	if _, err := os.Lstat(at("live")); !os.IsNotExist(err) {
		t.Errorf("a socket that was closed is still there: %v", err)
	}
}

// A socket that is removed under a running relay, or whose directory is made again, comes back.
func TestSocketComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, func(c *Config) { c.Socket, c.Tokens = path, nil })
	untilServed(t, path)
	for range 2 {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if code := untilServed(t, path); code != 200 {
			t.Errorf("the socket answers %d", code)
		}
	}
}

// A relay that starts beside another one with the same path waits for it, and one that ends leaves
// the path of its successor.
func TestSocketIsHandedOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := listenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.WarnLevel)
	serve(t, func(c *Config) { c.Socket, c.Log, c.Tokens = path, zap.New(core), nil })
	await.Until(t, "the path is in use", func() bool { return logs.Len() > 0 })
	_ = os.Remove(path) // by hand, or the successor's start
	if code := untilServed(t, path); code != 200 {
		t.Errorf("the socket answers %d", code)
	}
	_ = first.Close()
	if code := untilServed(t, path); code != 200 {
		t.Errorf("after the first has ended the socket answers %d", code)
	}
}
