package command

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

const (
	operate = "operate-operate-operate"
	read    = "read-read-read-read"
)

// relay answers as the relay does: its status to the token, or to everybody without one.
func relay(token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/healthz" && r.Header.Get("Authorization") == "":
			fmt.Fprint(w, `{"healthy": true}`)
		case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"title": "Unauthorized"}`)
		default:
			fmt.Fprintf(w, `{"state": "streaming", "version": %q}`, r.Header.Get("Authorization"))
		}
	})
}

func serve(t *testing.T, h http.Handler, tls bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	if tls {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// socket serves at a Unix socket. The path is short: t.TempDir may be longer than one may have.
func socket(t *testing.T, h http.Handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = listener
	s.Start()
	t.Cleanup(s.Close)
	return path
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// admin is a configuration with more keys of the section admin.
func admin(t *testing.T, section string) *config.Config {
	t.Helper()
	c, err := config.Load(file(t, "source: {url: postgres://h/d}\nsink: {stdout: {}}\nadmin: {"+section+"}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func address(s *httptest.Server) string { return s.Listener.Addr().String() }

// The relay on this host is asked by its socket if one is configured, and by its port only with
// TLS when that does not answer: a stranger's relay may listen there. It is asked with the first
// token that can be read, where no other user of this host can be who listens.
func TestWayToTheRelay(t *testing.T) {
	open, closed := socket(t, relay("")), socket(t, relay("nobody has it"))
	port, silent := serve(t, relay(read), false), serve(t, relay(""), false)
	silent.Close()
	missing, left := filepath.Join(t.TempDir(), "missing"), filepath.Join(t.TempDir(), "left")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: left})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	tokens := "tokens: [{name: broken, role: read, value: '${file:" + missing + "}'}, {name: o, role: operate, value: " + operate + "}, {name: r, role: read, value: " + read + "}]"
	operator := "tokens: [{name: o, role: operate, value: " + operate + "}]"
	anybody, secure := serve(t, relay(""), false), serve(t, relay(operate), true)
	cert := file(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})))
	refused, answered := new(*RefusedError), new(*AnswerError)
	for _, c := range []struct {
		name, section, admin string
		sent                 string // the token that was sent
		err                  any    // what the error is, or says
	}{
		{"the socket", "socket: " + open + ", listen: '" + address(silent) + "', " + tokens, "", "", nil},
		{"the port beside a socket that is not there", "socket: " + missing + ", listen: '" + address(port) + "', " + tokens, "", "", "there is no socket at " + missing},
		{"a squatter of the port beside a socket", "socket: " + missing + ", listen: '" + address(serve(t, relay(""), false)) + "', " + tokens, "", "", "there is no socket at " + missing},
		{"the port beside a socket that refuses", "socket: " + closed + ", listen: '" + address(port) + "', " + tokens, "", "", "a relay answers at unix:" + closed + ", and refuses this user: ask as root or as the relay's user, docs/running.md#security"},
		{"the port by name beside a socket", "socket: " + closed + ", " + tokens, address(port), read, nil},
		{"the port with TLS beside a socket", "socket: " + closed + ", listen: '" + address(secure) + "', tls: {cert: " + cert + "}, " + operator, "", operate, nil},
		{"the port", "listen: '" + address(port) + "', " + tokens, "", read, nil},
		{"no token", "listen: '" + address(port) + "'", "", "", refused},
		{"a token that may do more", "listen: '" + address(anybody) + "', " + operator, "", "", nil},
		{"a token that may do more, by name", operator, anybody.URL, operate, nil},
		{"the wrong token", operator, address(port), "", refused},
		{"a socket that refuses", "socket: " + closed, "unix:" + closed, "", refused},
		{"nobody", "socket: " + missing + ", listen: '" + address(silent) + "'", "", "", "there is no socket at " + missing},
		{"nobody with TLS", "socket: " + missing + ", listen: '" + address(silent) + "', tls: {cert: " + cert + "}", "", "", "there is no socket at " + missing + ", and nothing listens on " + address(silent)},
		{"a socket that was left", "socket: " + left + ", listen: ''", "", "", "the socket at " + left + " was left by a relay that has ended"},
		{"no way", "listen: ''", "", "", "this configuration opens no way to its relay: set admin.socket or admin.listen"},
		{"a socket by name", "listen: '" + address(silent) + "', " + tokens, "unix:" + open, "", nil},
		{"a socket as a URL", "", "unix://" + open, "", nil},
		{"a port by name", tokens, address(port), read, nil},
		{"a URL", tokens, port.URL + "/", read, nil},
		{"another program", "", serve(t, http.NotFoundHandler(), false).URL, "", answered},
		{"another scheme", "", "ftp://127.0.0.1:1", "", answered},
		{"no socket", "", "unix:", "", answered},
		{"elsewhere", tokens, serve(t, http.RedirectHandler(port.URL, http.StatusFound), false).URL, "", answered},
	} {
		status, err := Status(t.Context(), admin(t, c.section), c.admin)
		want := ""
		if c.sent != "" {
			want = "Bearer " + c.sent
		}
		said, isText := c.err.(string)
		switch {
		case isText && (err == nil || err.Error() != said):
			t.Errorf("%s: %v, want %q", c.name, err, said)
		case isText:
		case c.err == nil && (err != nil || status.Version != want):
			t.Errorf("%s: %+v, %v; want the token %q", c.name, status, err, c.sent)
		case c.err != nil && (err == nil || !errors.As(err, c.err)):
			t.Errorf("%s: %v, want %T", c.name, err, c.err)
		}
	}
}

// The relay's own certificate is good by its file, under any name; of others only what an authority
// has signed for the name.
func TestCertificates(t *testing.T) {
	s, other := serve(t, relay(""), true), serve(t, relay(""), true)
	cert := file(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	_, port, err := net.SplitHostPort(address(s))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, section, admin, want string }{
		{"the configured port", "listen: '" + address(s) + "', tls: {cert: " + cert + "}", "", ""},
		{"its own under another name", "tls: {cert: " + cert + "}", "https://localhost:" + port, ""},
		{"one that nobody knows", "", s.URL, "certificate"},
		{"without TLS", "tls: {cert: " + cert + "}", "http://" + address(s), "400"},
		{"a file that is not there", "tls: {cert: /nowhere}", other.URL, "certificate"},
	} {
		_, err := Status(context.Background(), admin(t, c.section), c.admin)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// Who asks whether the relay is healthy shows no token, and knows the port without TLS.
func TestHealth(t *testing.T) {
	s, silent := serve(t, relay(read), false), serve(t, nil, false)
	silent.Close()
	tokens := ", tokens: [{name: r, role: read, value: " + read + "}]"
	for name, c := range map[string]struct{ section, admin string }{
		"the port":          {"listen: '" + address(s) + "'" + tokens, ""},
		"the metrics' port": {"listen: '" + address(silent) + "', metrics_listen: '" + address(s) + "'" + tokens, ""},
		"the socket":        {"listen: '" + address(silent) + "', socket: " + socket(t, relay(read)) + tokens, ""},
		"by name":           {"", address(s)},
	} {
		if why := Health(t.Context(), admin(t, c.section), c.admin); why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
	// another relay at the port answers for nobody
	missing := filepath.Join(t.TempDir(), "missing")
	beside := "listen: '" + address(s) + "', socket: " + missing + tokens
	if why, want := Health(t.Context(), admin(t, beside), ""), "no relay answers: there is no socket at "+missing; why != want {
		t.Errorf("without the socket: %q, want %q", why, want)
	}
	if why := Health(t.Context(), nil, s.URL); why != "" {
		t.Errorf("without a configuration: %s", why)
	}
	if why := Health(t.Context(), nil, silent.URL); !strings.HasPrefix(why, "no relay answers: ") {
		t.Errorf("without a relay: %q", why)
	}
}

// An operate token does not leave this host in clear text, and no token is shown to a proxy.
func TestTokenStaysHere(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	c := admin(t, "tokens: [{name: o, role: operate, value: "+operate+"}]")
	for address, want := range map[string]string{
		"http://relay.example:8464": "", "relay.example:8464": "", "https://relay.example:8464": operate, "localhost:8464": operate, "http://[::1]:8464": operate,
	} {
		all, err := targets(c, address, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := all[0].readToken(c); got != want {
			t.Errorf("%s is shown %q, want %q", address, got, want)
		}
		if all[0].transport.Proxy != nil {
			t.Errorf("%s is asked through a proxy", address)
		}
	}
}
