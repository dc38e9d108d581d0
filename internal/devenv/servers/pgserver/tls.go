// TLS of a server.

package pgserver

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

// secure copies the certificates to where the server may read them, and returns the lines of
// postgresql.conf. The server takes a key only of its own user or of root, and only when no other
// can read it.
func (p *Postgres) secure(certs *testcerts.Certificates) ([]string, error) {
	id, err := postgresUser()
	if err != nil {
		return nil, err
	}
	lines := []string{"ssl = on"}
	for _, file := range []struct{ setting, from string }{
		{"ssl_cert_file", certs.Server.Cert}, {"ssl_key_file", certs.Server.Key}, {"ssl_ca_file", certs.CA},
	} {
		text, err := os.ReadFile(file.from)
		if err != nil {
			return nil, fmt.Errorf("read certificate: %w", err)
		}
		path := filepath.Join(p.dir, file.setting+".pem")
		err = os.WriteFile(path, text, 0o600)
		if err == nil && id != nil {
			err = os.Chown(path, int(id.Uid), int(id.Gid))
		}
		if err != nil {
			return nil, fmt.Errorf("give certificate to the server: %w", err)
		}
		lines = append(lines, fmt.Sprintf("%s = '%s'", file.setting, path))
	}
	return lines, nil
}

// writeHBA writes pg_hba.conf: who may log in, and how.
func (p *Postgres) writeHBA(lines []string) error {
	text := "hostnossl all postgres 127.0.0.1/32 trust\n" + strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(p.data(), "pg_hba.conf"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write pg_hba.conf: %w", err)
	}
	return nil
}

// TLSURL is the address of a database for a user over TLS that checks the server's certificate and
// name (sslmode verify-full), with a client certificate unless its paths are empty.
func (p *Postgres) TLSURL(db, user, ca string, client testcerts.CertificateFiles) string {
	u := *p.Url
	u.User, u.Path = url.User(user), "/"+db
	q := url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca}}
	if client.Cert != "" {
		q.Set("sslcert", client.Cert)
		q.Set("sslkey", client.Key)
	}
	u.RawQuery = q.Encode()
	return u.String()
}
