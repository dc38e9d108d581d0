package sink

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error about a TLS file names its key.
func TestTLSFilesAreNamedByTheirKey(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open.pem")
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o604); err != nil {
		t.Fatal(err)
	}
	for want, files := range map[string]TLS{
		"sink.kafka.tls.ca: open ":             {CA: filepath.Join(dir, "none.pem")},
		"sink.kafka.tls.ca: no certificate in": {CA: empty},
		"sink.kafka.tls.cert: ":                {Cert: empty},
		"sink.kafka.tls.key: every user of this host may read the file " + open: {Cert: empty, Key: open},
		"sink.kafka.tls.key: every user":                                        {Cert: open},
	} {
		if _, err := files.Load("sink.kafka.tls")(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if cfg, err := (TLS{ServerName: "broker"}).Load("sink.kafka.tls")(); err != nil || cfg.ServerName != "broker" || cfg.RootCAs != nil {
		t.Errorf("got %+v, %v", cfg, err)
	}
}
