package check

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

// peer is a connection to an address, without the connection.
type peer struct {
	net.Conn
	to net.Addr
}

func (p peer) RemoteAddr() net.Addr { return p.to }

// Each way to hand the login, or all events, to somebody in between is a warning; what nobody is in
// between of, or what proves the server, is none.
func TestJudgeLogin(t *testing.T) {
	certs, err := testcerts.NewCertificates()
	if err != nil {
		t.Fatal(err)
	}
	ca := certs.CA
	away, here := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 5432}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5432}
	for name, c := range map[string]struct {
		settings string
		to       net.Addr
		tls      bool
		warns    string
	}{
		"this machine":       {"sslmode=disable", here, false, ""},
		"socket":             {"sslmode=disable", &net.UnixAddr{Name: "/run/s", Net: "unix"}, false, ""},
		"disable":            {"sslmode=disable", away, false, "without TLS to 10.0.0.7:5432"},
		"allow, not TLS":     {"sslmode=allow", away, false, "without TLS"},
		"prefer, not TLS":    {"sslmode=prefer", away, false, "without TLS"},
		"default, not TLS":   {"", away, false, "without TLS"},
		"bound, but not TLS": {"channel_binding=require sslmode=prefer", away, false, "without TLS"},
		"prefer, TLS":        {"sslmode=prefer require_auth=scram-sha-256", away, true, "not verified"},
		"require":            {"sslmode=require require_auth=scram-sha-256", away, true, "not verified"},
		"require with a CA":  {"sslmode=require require_auth=scram-sha-256 sslrootcert=" + ca, away, true, "not verified"},
		"verify-ca":          {"sslmode=verify-ca require_auth=scram-sha-256 sslrootcert=" + ca, away, true, "not verified"},
		"verify-full":        {"sslmode=verify-full require_auth=scram-sha-256", away, true, ""},
		"bound":              {"sslmode=require channel_binding=require", away, true, ""},
		"two hosts":          {"host=/run/postgresql,db sslmode=verify-full require_auth=scram-sha-256", away, true, ""},
		"no password":        {"password='' sslmode=verify-full", away, true, ""},
	} {
		cfg, err := pgconn.ParseConfig("host=db user=relay password=pgsecret " + c.settings)
		if err != nil {
			t.Fatal(err)
		}
		var conn net.Conn = peer{to: c.to}
		if c.tls {
			conn = tls.Client(conn, new(tls.Config))
		}
		if detail, warn := judgeLogin(cfg, conn); warn != (c.warns != "") || !strings.Contains(detail, c.warns) {
			t.Errorf("%s: warns %v: %s; want %q", name, warn, detail, c.warns)
		}
	}
}

// The fix has the form of the address that it is written into.
func TestFixOfALogin(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://relay@db/shop": "sslmode=verify-full&sslrootcert=",
		"host=db dbname=shop":      "sslmode=verify-full sslrootcert=",
	} {
		if fix := fixLogin(url, peer{}); !strings.Contains(fix, want) || !strings.Contains(fix, "ssl = on") {
			t.Errorf("%s: %s", url, fix)
		}
	}
}
