package rabbit

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// systemCA is what this test process takes for the system's roots: Go reads SSL_CERT_FILE once, at its first need, so there
// is one for the process.
var systemCA = sync.OnceValues(newAuthority)

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return authority{}, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return authority{}, err
	}
	return authority{cert, key}, nil
}

// files writes the CA's certificate, and a server's for localhost with its key.
func (a authority) files(t *testing.T) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &priv.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	ca, cert, key = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
	for path, block := range map[string]*pem.Block{
		ca:   {Type: "CERTIFICATE", Bytes: a.cert.Raw},
		cert: {Type: "CERTIFICATE", Bytes: der},
		key:  {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return ca, cert, key
}

func TestTLS(t *testing.T) {
	port := devenv.FreePort(t)
	system, err := systemCA()
	if err != nil {
		t.Fatal(err)
	}
	ca, cert, key := system.files(t)
	t.Setenv("SSL_CERT_FILE", ca)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	real, err := devenv.StartRabbitMQ(ctx, devenv.RabbitOptions{Config: map[string]string{
		"listeners.ssl.1": fmt.Sprintf("127.0.0.1:%d", port), "ssl_options.cacertfile": ca,
		"ssl_options.certfile": cert, "ssl_options.keyfile": key, "ssl_options.verify": "verify_none",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := real.Close(); err != nil {
			t.Error(err)
		}
	})
	b := connect(t, real, real.URL())
	b.exchange("events", nil)
	cfg := b.config()
	cfg.URLs = []string{fmt.Sprintf("amqps://guest:guest@localhost:%d/", port)}

	t.Run("system roots", func(t *testing.T) {
		wantConfirmed(t, start(t, cfg).send(events(500, "created")...))
	})
	t.Run("own CA", func(t *testing.T) {
		cfg := cfg
		cfg.TLS = func() (*tls.Config, error) {
			pool := x509.NewCertPool()
			pool.AddCert(system.cert)
			return &tls.Config{RootCAs: pool}, nil
		}
		wantConfirmed(t, start(t, cfg).send(events(500, "created")...))
	})
	other, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("another CA is refused, until the file is the right one", func(t *testing.T) {
		right := make(chan struct{})
		cfg := cfg
		cfg.TLS = func() (*tls.Config, error) {
			pool := x509.NewCertPool()
			pool.AddCert(other.cert)
			select {
			case <-right:
				pool.AddCert(system.cert)
			default:
			}
			return &tls.Config{RootCAs: pool}, nil
		}
		s := start(t, cfg)
		until(t, "refusal", func() bool { _, why := s.Up(); return strings.Contains(why, "unknown authority") })
		wantFinding(t, Check(ctx, cfg), "broker", false, "unknown authority", "tls.ca")
		close(right)
		wantConfirmed(t, s.send(event("k", "created")))
	})
	t.Run("another name is refused", func(t *testing.T) {
		cfg := cfg
		cfg.URLs = []string{fmt.Sprintf("amqps://guest:guest@127.0.0.1:%d/", port)}
		wantFinding(t, Check(ctx, cfg), "broker", false, "127.0.0.1", "server_name")
	})
	t.Run("no TLS behind the port", func(t *testing.T) {
		cfg := cfg
		u, err := url.Parse(real.URL())
		if err != nil {
			t.Fatal(err)
		}
		cfg.URLs = []string{"amqps://guest:guest@" + u.Host + "/"}
		wantFinding(t, Check(ctx, cfg), "broker", false, "TLS", "amqp://")
	})
}

// wantFinding wants a finding of this name and result, whose texts contain these.
func wantFinding(t *testing.T, found []sink.Finding, name string, ok bool, detail, mend string) {
	t.Helper()
	for _, f := range found {
		if f.Name == name && f.OK == ok && strings.Contains(f.Detail, detail) && strings.Contains(f.Mend, mend) {
			return
		}
	}
	t.Errorf("no finding %q, ok %v, %q, %q among %+v", name, ok, detail, mend, found)
}
