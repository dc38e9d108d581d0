package secretfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file is refused as soon as everybody may open it, whatever the group may do. One that is not
// there is not.
func TestCheck(t *testing.T) {
	for mode, want := range map[os.FileMode]bool{0o600: true, 0o440: true, 0o670: true, 0o604: false, 0o602: false, 0o644: false} {
		path := file(t, "secret", "x", mode)
		if err := Check(path); (err == nil) != want || err != nil && !strings.HasSuffix(err.Error(), path+": chmod o-rwx "+path) {
			t.Errorf("%o: %v", mode, err)
		}
	}
	for _, path := range []string{"", filepath.Join(t.TempDir(), "none")} {
		if err := Check(path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// Files that pgx reads are found wherever they are named, and only if their secret is used.
func TestCheckPostgres(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"PGPASSFILE", "PGSSLKEY", "PGSERVICE", "PGSERVICEFILE", "PGPASSWORD"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	open, closed := file(t, "a secret", "x", 0o644), file(t, "secret", "x", 0o640)
	quoted := "'" + strings.ReplaceAll(open, " ", `\ `) + "'"
	services := file(t, "services", "[shop]\nhost=db\npassfile="+open+"\n[bill]\nhost=db\npassword=x\n", 0o644)
	for address, want := range map[string]string{
		"postgres://db/shop":                                           "",
		"postgres://db/shop?passfile=" + closed:                        "",
		"postgres://db/shop?passfile=" + open:                          open,
		"postgres://u:p@db/shop?passfile=" + open:                      "",
		"postgres://db/shop?password=p&passfile=" + open:               "",
		"postgresql://db/shop?sslkey=" + open:                          open,
		"host=db sslkey = " + quoted:                                   open,
		"host=db passfile=" + strings.ReplaceAll(open, " ", `\ `):      open,
		"host=db password=p passfile=" + quoted:                        "",
		"host=db passfile=" + closed:                                   "",
		"service=shop servicefile=" + services:                         open,
		"postgres:///?service=shop&servicefile=" + services:            open,
		"service=bill servicefile=" + services:                         services,
		"service=bill password=p servicefile=" + services:              "",
		"service=bill servicefile=" + services + ".missing":            "",
		"service=shop passfile=" + closed + " servicefile=" + services: "",
	} {
		check(t, address, want)
	}
	const plain = "host=db"
	for name, value := range map[string]string{"PGPASSFILE": open, "PGSSLKEY": open} {
		t.Setenv(name, value)
		check(t, plain, value)
		t.Setenv(name, "")
	}
	t.Setenv("PGPASSFILE", open)
	t.Setenv("PGPASSWORD", "p")
	check(t, plain, "")
	t.Setenv("PGPASSFILE", "")
	t.Setenv("PGPASSWORD", "")
	pass := filepath.Join(home, ".pgpass")
	write(t, pass, "x", 0o604)
	check(t, plain, pass)
}

func check(t *testing.T, address, want string) {
	t.Helper()
	err := CheckPostgres(address)
	if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), "chmod o-rwx "+want) {
		t.Errorf("%s: %v, want one about %q", address, err, want)
	}
}

func file(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	write(t, path, text, mode)
	return path
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
