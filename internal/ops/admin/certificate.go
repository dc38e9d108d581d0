// TLS of the admin server: its files are read again when they change.

package admin

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/secretfile"
)

// TLSFiles names PEM files; an empty Key is in the file of Cert. Without a Cert there is no TLS.
type TLSFiles struct {
	Cert, Key string
	CA        string // clients must have a certificate that it signed; "": need not
}

// soon is how long before its end a certificate is worth a warning.
const soon = 7 * 24 * time.Hour

// load reads the files.
func (f TLSFiles) load() (*tls.Config, error) {
	key := cmp.Or(f.Key, f.Cert)
	if err := secretfile.Check(key); err != nil {
		return nil, fmt.Errorf("admin.tls.key: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, key)
	if err != nil {
		return nil, fmt.Errorf("admin.tls.cert: cannot use %s: %w: want PEM files that belong together and that the relay may read", f.Cert, err)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("admin.tls.ca: %w", err)
		}
		out.ClientCAs, out.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !out.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("admin.tls.ca: no certificate in %s: want a PEM file", f.CA)
		}
	}
	return out, nil
}

// Fault is what keeps clients from the server now, or soon will: one sentence with the fix.
func (f TLSFiles) Fault(now time.Time) error {
	loaded, err := f.load()
	if err != nil {
		return err
	}
	return f.expiry(loaded, now)
}

// expiry is an error about a certificate that is not valid now, or soon will not be: it is used
// nevertheless, for whether to take it is the client's choice.
func (f TLSFiles) expiry(loaded *tls.Config, now time.Time) error {
	begins, ends := loaded.Certificates[0].Leaf.NotBefore, loaded.Certificates[0].Leaf.NotAfter
	is := "expires"
	switch {
	case now.Before(begins):
		return fmt.Errorf("the certificate %s of admin.tls is valid only from %s: correct the clock, or wait", f.Cert, begins.UTC().Format(time.RFC3339))
	case now.Before(ends.Add(-soon)):
		return nil
	case now.After(ends):
		is = "has expired"
	}
	return fmt.Errorf("the certificate %s of admin.tls %s on %s: replace the file", f.Cert, is, ends.UTC().Format(time.RFC3339))
}

// certificate is what the server shows at a handshake.
type certificate struct {
	files TLSFiles
	log   *zap.Logger
	now   func() time.Time

	mu     sync.Mutex
	seen   [3]stamp
	loaded *tls.Config // nil: nothing could be loaded yet
	broken faults
}

// stamp tells one state of a file from the next.
type stamp struct {
	changed time.Time
	size    int64
}

func stampOf(path string) stamp {
	if info, err := os.Stat(path); err == nil {
		return stamp{info.ModTime(), info.Size()}
	}
	return stamp{}
}

// config is a tls.Config's GetConfigForClient. Files that changed and cannot be used leave what was
// loaded before: they are replaced one by one.
func (c *certificate) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := [3]stamp{stampOf(c.files.Cert), stampOf(c.files.Key), stampOf(c.files.CA)}
	var err error
	if c.loaded == nil || now != c.seen {
		var loaded *tls.Config
		if loaded, err = c.files.load(); err == nil {
			c.loaded, c.seen = loaded, now
		}
	}
	if err == nil { // a certificate ends without a change of its file
		err = c.files.expiry(c.loaded, c.now())
	}
	c.broken.report(c.log, "admin.tls", err)
	if c.loaded == nil {
		return nil, errors.New("no certificate could be loaded")
	}
	return c.loaded, nil
}
