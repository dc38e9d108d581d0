package sink

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

func TestFixTLS(t *testing.T) {
	alert := func(number uint8) error {
		return &net.OpError{Op: "remote error", Err: tls.AlertError(number)}
	}
	for want, err := range map[string]error{
		"set s.tls.ca":                            x509.UnknownAuthorityError{},
		"set s.tls.server_name":                   x509.HostnameError{Certificate: new(x509.Certificate), Host: "h"},
		"renew the broker's certificate":          x509.CertificateInvalidError{Cert: new(x509.Certificate), Reason: x509.Expired},
		"renew the client certificate, s.tls":     alert(45),
		"set s.tls.cert and key":                  alert(116),
		"check s.tls.cert and key, and that a CA": alert(48),
	} {
		if got := FixTLS("s.tls", fmt.Errorf("connect: %w", errors.Join(errors.New("other"), err))); !strings.Contains(got, want) {
			t.Errorf("of %v: %q, want %q", err, got, want)
		}
	}
	for _, err := range []error{nil, errors.New("x"), &net.OpError{Op: "dial", Err: errors.New("refused")}} {
		if got := FixTLS("s.tls", err); got != "" {
			t.Errorf("of %v: %q, want nothing", err, got)
		}
	}
}
