// Package testcerts issues certificates for tests.
package testcerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// Certificates are a CA of our own and what it has signed, as PEM files that live no longer than
// this process. They are good for servers of every kind at localhost, 127.0.0.1 and ::1, and for
// their clients, for a day.
type Certificates struct {
	CA            string // its certificate
	Server        CertificateFiles
	Client        CertificateFiles // of the name (CN) relay
	ExpiredClient CertificateFiles
	Stranger      CertificateFiles // a client's of the name relay, signed by another CA
	StrangerCA    string           // the certificate of that CA

	dir string
	ca  authority
}

// CertificateFiles are a certificate and its key (PKCS#8).
type CertificateFiles struct {
	Cert, Key string // paths; the key's is readable for its owner only
	Both      string // key and certificate in one file, as Kafka wants it
}

// authority signs.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCertificates makes them all.
func NewCertificates() (*Certificates, error) {
	dir, err := processes.NewDir("certificates")
	if err != nil {
		return nil, err
	}
	// PostgreSQL may run as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open directory to other users: %w", err)
	}
	c := &Certificates{dir: dir}
	var other authority
	if c.ca, c.CA, err = newAuthority(dir, "test CA"); err != nil {
		return nil, err
	}
	if other, c.StrangerCA, err = newAuthority(dir, "another test CA"); err != nil {
		return nil, err
	}
	day, past := time.Now().Add(24*time.Hour), time.Now().Add(-time.Hour)
	for _, want := range []struct {
		files *CertificateFiles
		by    authority
		name  string
		usage x509.ExtKeyUsage
		until time.Time
	}{
		{&c.Server, c.ca, "localhost", x509.ExtKeyUsageServerAuth, day},
		{&c.Client, c.ca, "relay", x509.ExtKeyUsageClientAuth, day},
		{&c.ExpiredClient, c.ca, "relay", x509.ExtKeyUsageClientAuth, past},
		{&c.Stranger, other, "relay", x509.ExtKeyUsageClientAuth, day},
	} {
		if *want.files, err = want.by.issue(dir, want.name, want.usage, want.until); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// IssueClient makes a client's certificate of that name (CN), good until then.
func (c *Certificates) IssueClient(name string, until time.Time) (CertificateFiles, error) {
	return c.ca.issue(c.dir, name, x509.ExtKeyUsageClientAuth, until)
}

// Pool is the CA, for the tests' own connections.
func (c *Certificates) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.ca.cert)
	return pool
}

func newAuthority(dir, name string) (authority, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, "", fmt.Errorf("make key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return authority{}, "", fmt.Errorf("make certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return authority{}, "", fmt.Errorf("make certificate: %w", err)
	}
	path, err := writePEM(dir, "ca-*.pem", 0o644, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	return authority{cert, key}, path, err
}

func (a authority) issue(dir, name string, usage x509.ExtKeyUsage, until time.Time) (CertificateFiles, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return CertificateFiles{}, fmt.Errorf("make key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	if usage == x509.ExtKeyUsageServerAuth {
		template.DNSNames = []string{name}
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return CertificateFiles{}, fmt.Errorf("make certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return CertificateFiles{}, fmt.Errorf("make key: %w", err)
	}
	cert, private := &pem.Block{Type: "CERTIFICATE", Bytes: der}, &pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}
	var files CertificateFiles
	if files.Cert, err = writePEM(dir, name+"-*.pem", 0o644, cert); err != nil {
		return CertificateFiles{}, err
	}
	if files.Key, err = writePEM(dir, name+"-*.key", 0o600, private); err != nil {
		return CertificateFiles{}, err
	}
	files.Both, err = writePEM(dir, name+"-both-*.pem", 0o600, private, cert)
	return files, err
}

func serial() *big.Int {
	n, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) //nolint:errcheck // it never fails
	return n
}

func writePEM(dir, pattern string, mode os.FileMode, blocks ...*pem.Block) (string, error) {
	var text []byte
	for _, b := range blocks {
		text = append(text, pem.EncodeToMemory(b)...)
	}
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return "", fmt.Errorf("write certificate: %w", err)
	}
	if _, err = f.Write(text); err == nil {
		err = f.Chmod(mode)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return "", fmt.Errorf("write certificate: %w", err)
	}
	return f.Name(), nil
}
