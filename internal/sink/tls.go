// TLS with a broker: its settings, its files, and what its errors mean.

package sink

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/secretfile"
)

// TLS names PEM files, which are read at every connect; "" is the system's authorities, or no
// client certificate.
type TLS struct {
	CA, Cert, Key string // an empty Key is in the file of Cert
	ServerName    string // "" is the host of the address
}

// Keys are its keys; under is the path below the sink's section, with a dot at its end.
func (t *TLS) Keys(under string) []setting.Key {
	return []setting.Key{
		setting.Text(under+"ca", &t.CA).Doc("PEM file of the CA. Empty: the system's."),
		setting.Text(under+"cert", &t.Cert).Doc("PEM file of a client certificate."),
		setting.Text(under+"key", &t.Key).Doc("PEM file of its key. Empty: in the file of `cert`."),
		setting.Text(under+"server_name", &t.ServerName).
			Doc("Name in the broker's certificate. Empty: the broker's host."),
	}
}

// Validate reports what is wrong with the values together.
func (t *TLS) Validate(v *Validation, under string) {
	if t.Key != "" && t.Cert == "" {
		v.FaultAt(v.Section+under+"key", errors.New("is the key of no certificate: tls.cert is not set"))
	}
}

// RefuseUnused refuses settings that look like TLS and leave it off: the password would cross the
// network in the clear.
func (t *TLS) RefuseUnused(v *Validation, under, why string) {
	for key, value := range map[string]string{"ca": t.CA, "cert": t.Cert, "key": t.Key, "server_name": t.ServerName} {
		if value != "" {
			v.FaultAt(v.Section+under+key, errors.New(why))
		}
	}
}

// Load reads the files again at every connect, so that rotated certificates are used. section is
// the one of t, for errors.
func (t TLS) Load(section string) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		out := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
		if t.CA != "" {
			pem, err := os.ReadFile(t.CA)
			if err != nil {
				return nil, fmt.Errorf("%s.ca: %w", section, err)
			}
			out.RootCAs = x509.NewCertPool()
			if !out.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("%s.ca: no certificate in %s", section, t.CA)
			}
		}
		if t.Cert != "" {
			key := cmp.Or(t.Key, t.Cert)
			if err := secretfile.Check(key); err != nil {
				return nil, fmt.Errorf("%s.key: %w", section, err)
			}
			pair, err := tls.LoadX509KeyPair(t.Cert, key)
			if err != nil {
				return nil, fmt.Errorf("%s.cert: %w", section, err)
			}
			// It is sent whoever signed it. Go keeps back one that none of the broker's CAs signed,
			// and the broker would complain about a missing certificate instead of a wrong one.
			out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		return out, nil
	}
}

// FixTLS returns the fix for a TLS error with a broker; "" for any other error. section is where
// the configuration has ca, cert, key and server_name.
func FixTLS(section string, err error) string {
	var unknownCA x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var network *net.OpError
	switch {
	case errors.As(err, &unknownCA):
		return "set " + section + ".ca to the CA that signed the broker's certificate"
	case errors.As(err, &hostname):
		return "use a name of the broker's certificate in its address, or set " + section + ".server_name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the broker's certificate, or set this machine's clock"
	case !isAlert(err) || !errors.As(err, &network):
		return ""
	}
	switch alert := network.Err.Error(); {
	case strings.Contains(alert, "expired"):
		return "renew the client certificate, " + section + ".cert"
	case strings.Contains(alert, "required"):
		return "the broker wants a client certificate: set " + section + ".cert and key"
	}
	return "the broker refuses the client certificate, or the lack of one: check " + section + ".cert and key, and that a CA of the broker's signed it"
}

// isAlert reports whether err is a TLS alert from the other end.
func isAlert(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "remote error"
}

// TLSConn is a connection with TLS, after its handshake, that knows why a broker refuses the client
// certificate. With TLS 1.3 the broker says so when the handshake is over for the client, and hangs
// up: the first write may come too late then and fail with a reset that gives no cause, while the
// broker's alert can still be read. One read and one write may run at the same time.
type TLSConn struct {
	*tls.Conn
	wrote bool
	alert atomic.Pointer[error]
}

func (c *TLSConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && isAlert(err) {
		c.alert.Store(&err)
	}
	return n, err
}

func (c *TLSConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil && !c.wrote {
		if _, alert := c.Read(make([]byte, 1)); isAlert(alert) {
			err = alert
		}
	}
	c.wrote = true
	return n, err
}

// Alert is the broker's alert, if there was one.
func (c *TLSConn) Alert() error {
	if alert := c.alert.Load(); alert != nil {
		return *alert
	}
	return nil
}

// Loopback reports whether a host of an address is this machine: nobody is in between.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
