package source

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

func TestFixOfTLS(t *testing.T) {
	alert := func(number uint8) error {
		return &net.OpError{Op: "remote error", Err: tls.AlertError(number)}
	}
	for want, err := range map[string]error{
		"set sslrootcert":               x509.UnknownAuthorityError{},
		"as the host in source.url":     x509.HostnameError{Certificate: new(x509.Certificate), Host: "h"},
		"renew the server's":            x509.CertificateInvalidError{Cert: new(x509.Certificate), Reason: x509.Expired},
		"renew the client certificate":  alert(45),
		"a CA of the server's ssl_ca_f": alert(48),
	} {
		if got := fixTLS(fmt.Errorf("connect: %w", err)); !strings.Contains(got, want) {
			t.Errorf("of %v: %q, want %q", err, got, want)
		}
	}
	for _, err := range []error{errors.New("x"), &net.OpError{Op: "dial", Err: errors.New("refused")}} {
		if got := fixTLS(err); got != "" {
			t.Errorf("of %v: %q, want nothing", err, got)
		}
	}
}

// What is said of one trouble is the same at each try: it is logged once.
func TestSteadyWords(t *testing.T) {
	const refused = "connect to 127.0.0.1:5432: remote error: tls: unknown certificate authority"
	for _, c := range []struct{ says, steady string }{
		{"connect to 127.0.0.1:5432: failed to write startup message: write failed: remote error: tls: unknown certificate authority", refused},
		{"connect to 127.0.0.1:5432: failed to receive message: remote error: tls: unknown certificate authority", refused},
		{"failed to receive message: unexpected EOF", "failed to receive message: unexpected EOF"},
		{"read tcp 127.0.0.1:40000->127.0.0.1:5432: i/o timeout", "read tcp 127.0.0.1:5432: i/o timeout"},
		{"expired: current time 2026-11-23T00:00:00Z is after 2026-11-22T00:00:00Z", "expired: after 2026-11-22T00:00:00Z"},
	} {
		if got := StableText(c.says); got != c.steady {
			t.Errorf("%q became %q, want %q", c.says, got, c.steady)
		}
	}
}
