// How commands ask a running relay over HTTP: by its socket or its ports, and with which token.

package command

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// timeout is how long a relay may take to answer.
const timeout = 3 * time.Second

// AnswerError is the error for an answer that no relay would give. Because some server has answered
// at that address, a command does not fall back to the database.
type AnswerError struct{ Text string }

// Error implements error.
func (e *AnswerError) Error() string { return e.Text }

// RefusedError is the error for a relay that answers and does not tell its status to this caller.
type RefusedError struct{ At string }

// Error implements error.
func (e *RefusedError) Error() string {
	if strings.HasPrefix(e.At, unixPrefix) {
		return "a relay answers at " + e.At + ", and refuses this user: ask as root or as the relay's user, docs/running.md#security"
	}
	return "a relay answers at " + e.At + ", and wants a token: set admin.socket or a token of role read in admin.tokens, docs/running.md#security"
}

// Status asks a relay for its status. It asks at the address admin or, when admin is "", at the
// addresses of the configuration c, its socket first. The tokens are those of c.
func Status(ctx context.Context, c *config.Config, admin string) (*ops.Status, error) {
	var status ops.Status
	err := anyOf(c, admin, false, func(t target) error {
		code, err := t.get(ctx, "/api/v1/status", t.readToken(c), &status)
		switch {
		case code == http.StatusUnauthorized || code == http.StatusForbidden:
			return &RefusedError{t.name}
		case code != 0 && code != http.StatusOK:
			return &AnswerError{fmt.Sprintf("the program at %s answers %d %s: correct --admin", t.name, code, http.StatusText(code))}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &status, nil
}

// Health asks a relay, at the same addresses as Status, whether it is healthy. It returns "" or the
// reason why not. c may be nil when admin is not "".
func Health(ctx context.Context, c *config.Config, admin string) string {
	err := anyOf(c, admin, true, func(t target) error {
		var h ops.Health
		code, err := t.get(ctx, "/healthz", "", &h)
		switch {
		case err != nil:
			return err
		case !h.Healthy || code != http.StatusOK:
			// /healthz tells which loop is stuck only to a caller who may read, as on the socket
			why := cmp.Or(strings.Join(h.Stuck, "; "), "the log names the loop that is stuck")
			return &AnswerError{fmt.Sprintf("%d %s: %s", code, http.StatusText(code), why)}
		}
		return nil
	})
	var answered *AnswerError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &answered):
		return err.Error()
	}
	return "no relay answers: " + err.Error()
}

// anyOf asks one target after the other until one answers. It goes on after a socket that refuses,
// or that a dead relay has left, because there may be a token for the port with TLS. Its error is
// the refusal of a relay, or else says of each target why nobody answers there.
func anyOf(c *config.Config, admin string, probe bool, ask func(target) error) error {
	all, err := targets(c, admin, probe)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("this configuration opens no way to its relay: set admin.socket or admin.listen")
	}
	var refused *RefusedError
	var silent []string
	for _, t := range all {
		var answered *AnswerError
		if err = ask(t); err == nil || errors.As(err, &answered) {
			return err
		}
		if !errors.As(err, &refused) {
			silent = append(silent, t.silence(err))
		}
	}
	if refused != nil {
		return refused
	}
	return errors.New(strings.Join(silent, ", and "))
}

// silence says why nobody answers at a target.
func (t *target) silence(err error) string {
	path := strings.TrimPrefix(t.name, unixPrefix)
	if whole, failed := filepath.Abs(path); failed == nil {
		path = whole
	}
	switch {
	case t.socket && errors.Is(err, fs.ErrNotExist):
		return "there is no socket at " + path
	case t.socket && errors.Is(err, syscall.ECONNREFUSED):
		return "the socket at " + path + " was left by a relay that has ended"
	case t.socket && errors.Is(err, fs.ErrPermission):
		return "this user may not open the socket at " + path
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens on " + t.name
	}
	return err.Error()
}

// get reads the JSON of a path. code is 0 when nobody answers.
func (t *target) get(ctx context.Context, path, token string, into any) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.base+path, nil)
	if err != nil {
		return 0, &AnswerError{fmt.Sprintf("--admin %s: %v", t.name, err)}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{
		Transport: t.transport,
		// a relay never redirects, and nobody else may see the token
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(into); err != nil {
		return resp.StatusCode, &AnswerError{fmt.Sprintf("another program than a relay answers at %s: %v", t.name, err)}
	}
	return resp.StatusCode, nil
}

// target is one address at which to ask the relay.
type target struct {
	name      string // as the flag or the configuration has it
	base      string // the URL
	socket    bool   // a Unix socket, which needs no token
	given     bool   // --admin names it
	transport *http.Transport
}

// unixPrefix begins the address of a Unix socket.
const unixPrefix = "unix:"

// targets returns the addresses at which to ask. With admin it is that one. Otherwise they are
// those of the configuration: the socket, where the kernel tells who asks, and then the ports;
// metrics_listen answers probes alone. When there is a socket, admin.listen is asked only with TLS,
// where the certificate proves whose port it is. Without TLS another relay may listen there while
// this one is down, because admin.listen has a default.
func targets(c *config.Config, admin string, probe bool) ([]target, error) {
	addresses := []string{admin}
	if admin == "" {
		addresses = nil
		if c.Admin.Socket != "" {
			addresses = append(addresses, unixPrefix+c.Admin.Socket)
		}
		if probe && c.Admin.MetricsListen != "" {
			addresses = append(addresses, c.Admin.MetricsListen)
		}
		if c.Admin.Listen != "" && (c.Admin.Socket == "" || c.Admin.TLS.Cert != "") {
			addresses = append(addresses, c.Admin.Listen)
		}
	}
	var out []target
	for _, address := range addresses {
		t, err := newTarget(c, address)
		if err != nil {
			return nil, err
		}
		t.given = admin != ""
		out = append(out, t)
	}
	return out, nil
}

// newTarget makes the target of one address.
func newTarget(c *config.Config, address string) (target, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	transport.Proxy = nil                                        // no proxy may see a token
	t := target{name: address, base: address, transport: transport}
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		if path = strings.TrimPrefix(path, "//"); path == "" {
			return t, &AnswerError{"--admin " + address + " has no path: want unix:/run/cdc-relay/admin.sock"}
		}
		t.base, t.socket = "http://relay", true
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		return t, nil
	}
	if !strings.Contains(address, "://") {
		t.base = "http://" + reachable(address)
		if c != nil && c.Admin.TLS.Cert != "" && address == c.Admin.Listen {
			t.base = "https://" + reachable(address)
		}
	}
	u, err := url.Parse(t.base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return t, &AnswerError{"--admin " + address + " is no address: want host:port, https://host:port or unix:/path"}
	}
	t.base = strings.TrimSuffix(t.base, "/")
	if u.Scheme == "https" {
		transport.TLSClientConfig = trust(c, u.Hostname())
	}
	return t, nil
}

// trust verifies a relay's certificate against the system's roots and those of admin.tls. It
// accepts the very certificate of admin.tls.cert under any name, because the relay on this host is
// asked by its address, which hardly any certificate names.
func trust(c *config.Config, host string) *tls.Config {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	var own []byte
	if c != nil {
		for _, path := range []string{c.Admin.TLS.CA, c.Admin.TLS.Cert} {
			// a file that cannot be read shows when its certificate is needed
			if content, err := os.ReadFile(path); path != "" && err == nil {
				roots.AppendCertsFromPEM(content)
			}
		}
		own = firstCertificate(c.Admin.TLS.Cert)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errors.New("the relay shows no certificate")
			}
			leaf := state.PeerCertificates[0]
			if own != nil && bytes.Equal(leaf.Raw, own) {
				return nil
			}
			opts := x509.VerifyOptions{Roots: roots, DNSName: host, Intermediates: x509.NewCertPool()}
			for _, c := range state.PeerCertificates[1:] {
				opts.Intermediates.AddCert(c)
			}
			_, err := leaf.Verify(opts)
			return err
		},
	}
}

// firstCertificate returns the first certificate of a file, or nil when the file has none or cannot
// be read.
func firstCertificate(path string) []byte {
	content, err := os.ReadFile(path)
	if path == "" || err != nil {
		return nil
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return block.Bytes
		}
	}
	return nil
}

// reachable turns an address to listen on into an address to connect to.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// readToken returns a token of the configuration for this target. It prefers one that may only
// read. It returns "" when no token can be read, or when the target is not to have one: while the
// relay is down, any user of this host may listen on its port and would receive the token. So a
// port without TLS gets no token when there is a socket, unless --admin names it. It gets a token
// that may operate only if --admin names an address of this host.
func (t *target) readToken(c *config.Config) (token string) {
	secure := strings.HasPrefix(t.base, "https:")
	if t.socket || c == nil || !secure && !t.given && c.Admin.Socket != "" {
		return ""
	}
	for _, configured := range c.Admin.Tokens {
		value, err := configured.Read()
		if err != nil {
			continue // it is broken or for another user; the next may work
		}
		if configured.Role == config.RoleRead {
			return value
		}
		if token == "" && (secure || t.given && t.loopback()) {
			token = value
		}
	}
	return token
}

func (t *target) loopback() bool {
	u, err := url.Parse(t.base)
	return err == nil && sink.Loopback(u.Hostname())
}
