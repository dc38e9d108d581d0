// Where a relay is asked: its Unix socket, or an address with or without TLS.

package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// target is one way to a relay.
type target struct {
	name      string // as it was given
	base      string // URL
	socket    bool   // which wants no token
	given     bool   // --admin names it
	transport *http.Transport
}

// unixPrefix begins the address of a socket.
const unixPrefix = "unix:"

// targets are the ways to the relay at the address admin; for "" to the one of the configuration:
// its socket, where the peer's user is the proof, then its ports, of which probes alone may be
// asked at the one without TLS.
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
		addresses = append(addresses, c.Admin.Listen)
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

func newTarget(c *config.Config, address string) (target, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	transport.Proxy = nil                                        // a token is for the relay alone
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

// trust verifies a relay's certificate against the system's roots and those of admin.tls. The very
// certificate of admin.tls.cert is good under any name: the relay on this host is asked by its
// address, which hardly any certificate has.
func trust(c *config.Config, host string) *tls.Config {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	var own []byte
	if c != nil {
		for _, path := range []string{c.Admin.TLS.CA, c.Admin.TLS.Cert} {
			// one that cannot be read is missing when it is needed
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

// firstCertificate is the first of a file; nil: it has none, or cannot be read.
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

// reachable turns an address to listen on into one to connect to.
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

// readToken is a token of the configuration that can be read, rather one that may only read; ""
// when there is none, or the target is not to have it. While the relay is down, any user of this
// host may listen on its port and would be given the token: a port without TLS gets none where
// there is a socket, and one that may operate only if --admin names an address of this host.
func (t *target) readToken(c *config.Config) (token string) {
	secure := strings.HasPrefix(t.base, "https:")
	if t.socket || c == nil || !secure && !t.given && c.Admin.Socket != "" {
		return ""
	}
	for _, configured := range c.Admin.Tokens {
		value, err := configured.Read()
		if err != nil {
			continue // it belongs to another user, or is broken: the next
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
