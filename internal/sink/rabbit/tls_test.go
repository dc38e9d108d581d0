package rabbit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// systemCA is what this test process takes for the system's roots: Go reads SSL_CERT_FILE once, at
// its first need, so there is one for the process.
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

// overTLS is the broker's address behind a server that speaks TLS with a certificate for localhost,
// and no more than hands on the bytes. That the broker's own TLS is understood is seen in test/cli.
func (b *broker) overTLS(cert, key string) string {
	b.t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	b.must(err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	b.must(err)
	var work sync.WaitGroup
	b.t.Cleanup(func() {
		listener.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed above
			}
			work.Go(func() { b.handOn(client) })
		}
	})
	_, port, err := net.SplitHostPort(listener.Addr().String())
	b.must(err)
	return "localhost:" + port
}

// handOn is one connection.
func (b *broker) handOn(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", b.real.Addr())
	if err != nil {
		b.t.Error(err)
		return
	}
	defer server.Close()
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		_, _ = io.Copy(client, server)
		client.Close()
	})
	_, _ = io.Copy(server, client)
	server.Close()
}

func TestTLS(t *testing.T) {
	system, err := systemCA()
	if err != nil {
		t.Fatal(err)
	}
	ca, cert, key := system.files(t)
	t.Setenv("SSL_CERT_FILE", ca)
	b := newBroker(t)
	b.exchange("events", nil)
	u, err := url.Parse(b.url)
	b.must(err)
	u.Scheme, u.Host = "amqps", b.overTLS(cert, key)
	cfg := b.config()
	cfg.URLs = []string{u.String()}

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
		await.Until(t, "refusal", func() bool { _, why := s.Up(); return strings.Contains(why, "unknown authority") })
		wantFinding(t, Check(b.ctx, cfg), "broker", false, "unknown authority", "tls.ca")
		close(right)
		wantConfirmed(t, s.send(newEvent("k", "created")))
	})
	t.Run("another name is refused", func(t *testing.T) {
		cfg := cfg
		u := *u
		u.Host = "127.0.0.1:" + u.Port()
		cfg.URLs = []string{u.String()}
		wantFinding(t, Check(b.ctx, cfg), "broker", false, "127.0.0.1", "server_name")
	})
	t.Run("no TLS behind the port", func(t *testing.T) {
		cfg := cfg
		u := *u
		u.Host = b.real.Addr()
		cfg.URLs = []string{u.String()}
		wantFinding(t, Check(b.ctx, cfg), "broker", false, "TLS", "amqp://")
	})
}

// wantFinding wants a finding of this name and result, whose texts contain these.
func wantFinding(t *testing.T, found []sink.Finding, name string, ok bool, detail, fix string) {
	t.Helper()
	for _, f := range found {
		if f.Name == name && f.OK == ok && strings.Contains(f.Detail, detail) && strings.Contains(f.Fix, fix) {
			return
		}
	}
	t.Errorf("no finding %q, ok %v, %q, %q among %+v", name, ok, detail, fix, found)
}
