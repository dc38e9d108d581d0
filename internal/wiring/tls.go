// TLS of connections to a broker.

package wiring

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

// BrokerTLS reads the files again at every connect, so that rotated certificates are used. section
// is the one of t, for errors.
func BrokerTLS(section string, t config.TLS) func() (*tls.Config, error) {
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
			pair, err := tls.LoadX509KeyPair(t.Cert, cmp.Or(t.Key, t.Cert))
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
