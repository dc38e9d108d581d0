package wiring

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
)

// certificate writes a certificate that is valid until the time given, and its key.
func certificate(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "relay"}, NotBefore: until.Add(-90 * 24 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, of, of, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, 0o644, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		write(t, 0o600, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
}

func write(t *testing.T, mode os.FileMode, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

// What is wrong on the admin side is a warning with its fix, and never a failure: the relay
// delivers without it.
func TestCheckAdmin(t *testing.T) {
	now := time.Now()
	long := strings.Repeat("t", 16)
	const day = 24 * time.Hour
	valid, validKey := certificate(t, now.Add(30*day))
	soon, soonKey := certificate(t, now.Add(7*day-time.Minute))
	expired, expiredKey := certificate(t, now.Add(-time.Minute))
	future, futureKey := certificate(t, now.Add(91*day))
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file, missing := write(t, 0o600, "x"), filepath.Join(t.TempDir(), "missing", "x")
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	token := func(path string) string { return "tokens: [{name: ops, role: operate, value: '${file:" + path + "}'}]" }

	for _, c := range []struct{ name, admin, level, finding, detail, fix string }{
		{"nothing", "", "ok", nameTokens, "the API answers nobody", ""},
		{"a socket alone", "socket: " + socket, "ok", nameTokens, "answers on admin.socket alone", ""},
		{"a token", token(write(t, 0o640, long)), "ok", nameTokens, "1 can be used", ""},
		{"a token without a file", token(missing), "warn", nameTokens, missing + ` of token "ops" is missing: ` + "`cdc-relay init`", ""},
		{"a token for everybody", token(write(t, 0o604, long)), "warn", nameTokens, "chmod o-rwx", ""},
		{"an empty token", token(write(t, 0o600, "\n")), "warn", nameTokens, `"ops" is empty`, ""},
		{"a short token", token(write(t, 0o600, " "+long[1:]+"\n")), "warn", nameTokens, "fewer than 16", ""},
		{"a token that is a pipe", token(fifo), "warn", nameTokens, "is not a regular file", ""},
		{"a socket", "socket: " + socket, "ok", nameSocket, socket, ""},
		{"a socket to be", "socket: " + socket + "2", "ok", nameSocket, socket + "2", ""},
		{"a file for a socket", "socket: " + file, "warn", nameSocket, file + " exists and is not a socket", "move it away"},
		{"a socket nowhere", "socket: " + missing, "warn", nameSocket, "the directory of " + missing + " is missing", "install -d"},
		{"a certificate", "tls: {cert: " + valid + ", key: " + validKey + "}", "ok", nameCertificate, valid, ""},
		{"a certificate that ends", "tls: {cert: " + soon + ", key: " + soonKey + "}", "warn", nameCertificate, "expires on", ""},
		{"a certificate that has ended", "tls: {cert: " + expired + ", key: " + expiredKey + "}", "warn", nameCertificate, "has expired on", ""},
		{"a certificate to come", "tls: {cert: " + future + ", key: " + futureKey + "}", "warn", nameCertificate, "is valid only from", ""},
		{"another key", "tls: {cert: " + valid + ", key: " + soonKey + "}", "warn", nameCertificate, "that belong together", ""},
		{"a key for everybody", "tls: {cert: " + valid + ", key: " + write(t, 0o604, "x") + "}", "warn", nameCertificate, "chmod o-rwx", ""},
		{"no certificate", "tls: {cert: " + missing + "}", "warn", nameCertificate, "admin.tls.cert: cannot use", ""},
		{"no authority", "tls: {cert: " + valid + ", key: " + validKey + ", ca: " + file + "}", "warn", nameCertificate, "admin.tls.ca: no certificate", ""},
	} {
		path := write(t, 0o600, "source: {url: postgres://h/d}\nsink: {stdout: {}}\nadmin: {"+c.admin+"}\n")
		loaded, err := config.Load(path, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		found := check.Finding{}
		for _, f := range checkAdmin(&loaded.Admin, now) {
			if f.Level == check.LevelFail {
				t.Errorf("%s: fails: %v", c.name, f)
			}
			if f.Name == c.finding {
				found = f
			}
		}
		if found.Level != c.level || !strings.Contains(found.Detail, c.detail) || !strings.Contains(found.Fix, c.fix) {
			t.Errorf("%s: %+v, want %s, %q, fix %q", c.name, found, c.level, c.detail, c.fix)
		}
	}
}

// One broken token is named, and does not hide that the others are good.
func TestCheckNamesEachBrokenToken(t *testing.T) {
	c := &config.Admin{Tokens: []config.Token{{Name: "a"}, {Name: "b"}}}
	if found := checkAdmin(c, time.Now()); len(found) != 2 || !strings.Contains(found[0].Detail, `"a"`) || !strings.Contains(found[1].Detail, `"b"`) {
		t.Errorf("%+v", found)
	}
}
