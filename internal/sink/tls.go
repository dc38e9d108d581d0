// Errors of TLS with a broker.

package sink

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"sync/atomic"
)

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
