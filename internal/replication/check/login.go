// Test of the login: who can read it on the way, and whom it is given to.

package check

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// login warns of a connection that somebody between the relay and PostgreSQL could read, or answer
// in the server's place: a role with REPLICATION can read the whole database.
func (c *checker) login(ctx context.Context) {
	const name = "postgres login"
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		c.add(name, "", err)
		return
	}
	defer conn.Release()
	pg := conn.Conn().PgConn()
	detail, warn := judgeLogin(&conn.Conn().Config().Config, pg.Conn())
	if !warn {
		c.add(name, detail, nil)
		return
	}
	c.warn(name, detail, fixLogin(c.c.URL, pg.Conn()))
}

// judgeLogin describes a connection that was made with cfg, and reports whether it is worth a
// warning. Nobody is in between on the way to the relay's own machine.
func judgeLogin(cfg *pgconn.Config, conn net.Conn) (detail string, warn bool) {
	switch risk := loginRisk(cfg, conn); {
	case risk == "":
		return "over TLS, and the server is verified", false
	case isLocal(conn.RemoteAddr()):
		return "on this machine", false
	default:
		return risk, true
	}
}

// loginRisk describes what somebody in between can do; "" if nothing.
func loginRisk(cfg *pgconn.Config, conn net.Conn) string {
	if _, secure := conn.(*tls.Conn); !secure {
		return "without TLS to " + conn.RemoteAddr().String() + ": whoever is in between reads the events, and the password if the server asks for it in clear text"
	}
	if cfg.ChannelBinding == "require" {
		return "" // a login through somebody in between fails, and no other is permitted
	}
	switch weakest(cfg) {
	case plain:
		return "over TLS, but sslmode allow or prefer goes on without it when somebody in between refuses it"
	case unverified:
		return "over TLS with any server: its certificate is not verified"
	case anyName:
		return "over TLS with any server that has a certificate of sslrootcert's CA: its name is not verified"
	}
	if cfg.Password != "" && maySendPassword(cfg.RequireAuth) {
		return "over TLS; the server may ask for the password in clear text, because require_auth does not exclude it"
	}
	return ""
}

// How far a configuration verifies the server, the weakest first.
const (
	plain = iota
	unverified
	anyName
	verified
)

// weakest is the weakest of what the configuration permits: sslmode allow and prefer permit two
// things, and several hosts are one after the other. Sockets of this machine have no TLS.
func weakest(cfg *pgconn.Config) int {
	strength := func(host string, t *tls.Config) int {
		switch {
		case strings.HasPrefix(host, "/"):
			return verified
		case t == nil:
			return plain
		case !t.InsecureSkipVerify:
			return verified
		case t.VerifyPeerCertificate != nil: // pgconn's own, for verify-ca
			return anyName
		}
		return unverified
	}
	least := strength(cfg.Host, cfg.TLSConfig)
	for _, f := range cfg.Fallbacks {
		least = min(least, strength(f.Host, f.TLSConfig))
	}
	return least
}

// maySendPassword reports whether require_auth permits a password in clear text.
func maySendPassword(requireAuth string) bool {
	methods := strings.Split(requireAuth, ",")
	if requireAuth == "" || strings.HasPrefix(methods[0], "!") {
		return !slices.Contains(methods, "!password")
	}
	return slices.Contains(methods, "password")
}

func isLocal(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return addr.Network() == "unix" || ok && tcp.IP.IsLoopback()
}

// fixLogin returns what to add to source.url, in its own form.
func fixLogin(url string, conn net.Conn) string {
	between := " "
	if strings.Contains(url, "://") {
		between = "&"
	}
	fix := "in source.url: " + strings.Join([]string{"sslmode=verify-full", "sslrootcert=/etc/cdc-relay/postgres-ca.pem", "require_auth=scram-sha-256"}, between)
	if _, secure := conn.(*tls.Conn); !secure {
		fix += "; the server needs ssl = on and a certificate of that CA"
	}
	return fix
}
