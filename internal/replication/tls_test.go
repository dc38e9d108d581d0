package replication

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

func TestMendOfTLS(t *testing.T) {
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
		if got := mendTLS(fmt.Errorf("connect: %w", err)); !strings.Contains(got, want) {
			t.Errorf("of %v: %q, want %q", err, got, want)
		}
	}
	for _, err := range []error{errors.New("x"), &net.OpError{Op: "dial", Err: errors.New("refused")}} {
		if got := mendTLS(err); got != "" {
			t.Errorf("of %v: %q, want nothing", err, got)
		}
	}
}
