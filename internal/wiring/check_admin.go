// The check of the admin side: tokens, socket, certificate. Each is a warning at most, because
// delivery depends on none of them.

package wiring

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
)

// The names of the findings.
const (
	nameTokens      = "admin tokens"
	nameSocket      = "admin socket"
	nameCertificate = "admin certificate"
)

// certificateNotice is how long before its end a certificate is warned of.
const certificateNotice = 7 * 24 * time.Hour

// checkAdmin looks at what opens the API, with the eyes of the user who runs the check.
func checkAdmin(c *config.Admin, now time.Time) []check.Finding {
	findings := checkTokens(c)
	if c.Socket != "" {
		detail, fix := socketFault(c.Socket)
		findings = append(findings, warnOrOK(nameSocket, c.Socket, detail, fix))
	}
	if c.TLS.Cert != "" {
		good, detail, fix := certificateFault(&c.TLS, now)
		findings = append(findings, warnOrOK(nameCertificate, good, detail, fix))
	}
	return findings
}

func warnOrOK(name, good, fault, fix string) check.Finding {
	if fault != "" {
		return check.Finding{Name: name, Level: check.LevelWarn, Detail: fault, Fix: fix}
	}
	return check.Finding{Name: name, Level: check.LevelOK, Detail: good}
}

// checkTokens names each token that opens nothing, and why.
func checkTokens(c *config.Admin) (findings []check.Finding) {
	for i := range c.Tokens {
		if _, err := c.Tokens[i].Read(); err != nil {
			findings = append(findings, warnOrOK(nameTokens, "", err.Error(), ""))
		}
	}
	good := fmt.Sprintf("%d can be used", len(c.Tokens))
	switch {
	case len(findings) > 0:
		return findings
	case len(c.Tokens) == 0 && c.Socket == "":
		good = "none, and no admin.socket: the API answers nobody"
	case len(c.Tokens) == 0:
		good = "none: the API answers on admin.socket alone"
	}
	return append(findings, warnOrOK(nameTokens, good, "", ""))
}

// socketFault is why the relay cannot listen on a socket at path; "" when it can, or does.
func socketFault(path string) (fault, fix string) {
	dir := filepath.Dir(path)
	switch info, err := os.Lstat(path); {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return path + " exists and is not a socket", "move it away, or set admin.socket to another path"
	case err == nil:
		return "", ""
	case !errors.Is(err, fs.ErrNotExist):
		return err.Error(), "set admin.socket to a path in a directory of the relay's user"
	}
	if _, err := os.Stat(dir); err != nil {
		return "the directory of " + path + " is missing", "install -d -m 755 -o USER " + dir + ", USER being the relay's"
	}
	return "", ""
}

// certificateFault is why clients refuse the certificate, or soon will.
func certificateFault(c *config.AdminTLS, now time.Time) (good, fault, fix string) {
	const renew = "renew it; the relay reads it again without a restart"
	key := c.Key
	if key == "" {
		key = c.Cert
	}
	pair, err := tls.LoadX509KeyPair(c.Cert, key)
	if err != nil {
		return "", fmt.Sprintf("the certificate %s cannot be used with the key %s: %v", c.Cert, key, err),
			"correct admin.tls.cert and admin.tls.key: PEM files that belong together and that the relay may read"
	}
	if c.CA != "" {
		content, err := os.ReadFile(c.CA)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(content) {
			err = errors.New("it has no certificate")
		}
		if err != nil {
			return "", fmt.Sprintf("the authority of clients, %s, cannot be used: %v", c.CA, err), "correct admin.tls.ca: a PEM file that the relay may read"
		}
	}
	until := pair.Leaf.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case now.After(pair.Leaf.NotAfter):
		return "", fmt.Sprintf("%s has expired at %s", c.Cert, until), renew
	case now.Before(pair.Leaf.NotBefore):
		return "", fmt.Sprintf("%s is valid only from %s", c.Cert, pair.Leaf.NotBefore.UTC().Format(time.RFC3339)), "correct the clock, or wait"
	case now.Add(certificateNotice).After(pair.Leaf.NotAfter):
		return "", fmt.Sprintf("%s expires at %s", c.Cert, until), renew
	}
	return "valid until " + until, "", ""
}
