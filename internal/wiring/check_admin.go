// The check of the admin side: tokens, socket, certificate. Each is a warning at most, because
// delivery depends on none of them.

package wiring

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops/admin"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
)

// The names of the findings.
const (
	nameTokens      = "admin tokens"
	nameSocket      = "admin socket"
	nameCertificate = "admin certificate"
)

// checkAdmin looks at what opens the API, with the eyes of the user who runs the check.
func checkAdmin(c *config.Admin, now time.Time) []check.Finding {
	findings := checkTokens(c)
	if c.Socket != "" {
		detail, fix := socketFault(c.Socket)
		findings = append(findings, warnOrOK(nameSocket, c.Socket, detail, fix))
	}
	if c.TLS.Cert != "" {
		detail := ""
		if err := admin.TLSFiles(c.TLS).Fault(now); err != nil {
			detail = err.Error() // with its fix
		}
		findings = append(findings, warnOrOK(nameCertificate, c.TLS.Cert, detail, ""))
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
