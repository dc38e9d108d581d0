// The settings of TLS with a broker, and its files.

package sink

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

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

// Unused refuses settings that look like TLS and leave it off: the password would cross the network
// in the clear.
func (t *TLS) Unused(v *Validation, under, why string) {
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
