// Package secretfile has the one rule for files with a secret, whoever reads them: not every user
// of the host may open them.
package secretfile

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgservicefile"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// Check is the rule. A file that cannot be looked at is left to who reads it.
func Check(path string) error {
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o007 != 0 {
		return fmt.Errorf("every user of this host may read the file %s: chmod o-rwx %[1]s", path)
	}
	return nil
}

// CheckPostgres is the rule for the files that an address of PostgreSQL, the environment and the
// home directory give pgx: the key of the client's certificate, a service file that has a password,
// and the password file, if the password is in no other place.
func CheckPostgres(address string) error {
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.DevNull // below it are no files
	}
	written, service := addressSettings(address), map[string]string{}
	file := cmp.Or(written("servicefile"), os.Getenv("PGSERVICEFILE"), filepath.Join(home, ".pg_service.conf"))
	if name := cmp.Or(written("service"), os.Getenv("PGSERVICE")); name != "" {
		if services, err := pgservicefile.ReadServicefile(file); err == nil {
			if s, err := services.GetService(name); err == nil {
				service = s.Settings
			}
		}
	}
	value := func(name, variable, fallback string) string {
		return cmp.Or(written(name), service[name], os.Getenv(variable), filepath.Join(home, fallback))
	}
	paths := []string{value("sslkey", "PGSSLKEY", ".postgresql/postgresql.key")}
	switch {
	case written("password") != "":
	case service["password"] != "":
		paths = append(paths, file)
	case os.Getenv("PGPASSWORD") == "":
		paths = append(paths, value("passfile", "PGPASSFILE", ".pgpass"))
	}
	for _, path := range paths {
		if err := Check(path); err != nil {
			return err
		}
	}
	return nil
}

// addressSettings finds a setting of an address of PostgreSQL, which is a URL or a list of
// keywords, by its name; "" if the address does not have it.
func addressSettings(address string) func(name string) string {
	if u, err := url.Parse(address); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		return func(name string) string {
			if password, _ := u.User.Password(); name == "password" && password != "" {
				return password
			}
			return u.Query().Get(name)
		}
	}
	return func(name string) (last string) {
		for _, of := range keywordValue().FindAllStringSubmatch(address, -1) {
			if of[1] == name {
				last = escapedCharacter().ReplaceAllString(strings.Trim(of[2], "'"), "$1")
			}
		}
		return last
	}
}

var (
	keywordValue     = lazy.Regexp(`([a-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)+)`)
	escapedCharacter = lazy.Regexp(`\\(.)`)
)
