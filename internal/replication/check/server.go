// Tests of the server itself, and of a pooler or proxy between it and the relay.

package check

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// checkReplication tests whether the role may replicate, and keeps who the server is.
func (c *checker) checkReplication(ctx context.Context) {
	conn, err := source.ConnectStream(ctx, c.cfg)
	if err != nil {
		c.addResult("replication connection", "", source.OrFatal(c.cfg, err))
		return
	}
	defer source.CloseStream(conn)
	c.id, err = slot.Identify(ctx, conn)
	c.addResult("replication connection", "this role may replicate", source.OrFatal(c.cfg, err))
}

// checkFreeSlots tests whether a slot and a walsender are free. Ours are not counted: they may
// exist already.
func (c *checker) checkFreeSlots(ctx context.Context) {
	var slots, maxSlots, senders, maxSenders int
	err := c.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name <> $1), current_setting('max_replication_slots')::int,
		(SELECT count(*) FROM pg_stat_replication WHERE application_name IS DISTINCT FROM $2), current_setting('max_wal_senders')::int`,
		c.cfg.Slot, c.cfg.ApplicationName()).Scan(&slots, &maxSlots, &senders, &maxSenders)
	if err != nil {
		c.warnUnchecked("replication slots", err)
		return
	}
	if detail := fmt.Sprintf("%d of %d used by others", slots, maxSlots); slots < maxSlots {
		c.addResult("replication slots", detail, nil)
	} else {
		c.addFailure("replication slots", detail+": none is left for the relay",
			fmt.Sprintf("ALTER SYSTEM SET max_replication_slots = %d, then restart the server; or drop an unused one (SELECT slot_name, active FROM pg_replication_slots)", maxSlots+4))
	}
	detail := fmt.Sprintf("%d of %d used by others", senders, maxSenders)
	if senders+1 >= maxSenders {
		c.addWarning("wal senders", detail+": the relay needs one, and a second relay another while it starts",
			fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d, then restart the server", max(10, maxSenders+4)))
		return
	}
	c.addResult("wal senders", detail, nil)
}

// checkConnectionLimits compares the connection limits of role and database with what the relay
// opens.
func (c *checker) checkConnectionLimits(ctx context.Context) {
	const name = "connections"
	const need = source.PoolConnections + 1
	var role, database, all int
	err := c.pool.QueryRow(ctx, `SELECT (SELECT rolconnlimit FROM pg_roles WHERE rolname = session_user),
		(SELECT datconnlimit FROM pg_database WHERE datname = current_database()), current_setting('max_connections')::int`).Scan(&role, &database, &all)
	switch {
	case c.warnUnchecked(name, err):
	case role >= 0 && role < need:
		c.addWarning(name, fmt.Sprintf("this role may have %d, the relay uses up to %d", role, need), fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT -1", source.QuoteName(c.user)))
	case database >= 0 && database < need:
		c.addWarning(name, fmt.Sprintf("this database may have %d, the relay uses up to %d", database, need), fmt.Sprintf("ALTER DATABASE %s CONNECTION LIMIT -1", source.QuoteName(c.database)))
	default:
		c.addResult(name, fmt.Sprintf("the relay uses up to %d; max_connections is %d", need, all), nil)
	}
}

// checkPooler detects a connection pooler: it may drop the settings that the relay sends, and it
// gives its clients a backend pid of its own instead of the server's.
func (c *checker) checkPooler(ctx context.Context) {
	const name = "connection pooler"
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		c.addResult(name, "", err)
		return
	}
	defer conn.Release()
	var pid uint32
	err = conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid)
	var lost []string
	if err == nil {
		lost, err = droppedSettings(ctx, conn, c.cfg)
	}
	if err != nil {
		c.addResult(name, "", err)
		return
	}
	c.reportPooler(conn.Conn().PgConn().PID() == pid, lost)
}

// reportPooler adds the finding of direct. The proxy of a hosting service passes on everything but
// the pid; it is harmless.
func (c *checker) reportPooler(samePID bool, lost []string) {
	const name = "connection pooler"
	switch {
	case len(lost) > 0:
		c.addFailure(name, "something between the relay and PostgreSQL, such as PgBouncer, drops settings of the relay's sessions: "+strings.Join(lost, ", "), source.FixPooler)
	case !samePID:
		c.addWarning(name, "something between the relay and PostgreSQL answers for it. A proxy that gives each connection its own session is harmless; a pooler that shares sessions is not",
			"if it is a pooler, "+source.FixPooler)
	default:
		c.addResult(name, "none in between", nil)
	}
}

// droppedSettings returns the settings that the relay sent with the connection and that are not in
// effect. Those of TCP are not compared: over a Unix socket they are 0.
func droppedSettings(ctx context.Context, q source.Querier, c *source.Config) ([]string, error) {
	sent := source.Settings(c.ApplicationName())
	rows, err := q.Query(ctx, `SELECT n, coalesce(current_setting(n, true), '') FROM unnest($1::text[]) n`, slices.Sorted(maps.Keys(sent)))
	if err != nil {
		return nil, err
	}
	var name, value string
	var lost []string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		if value != sent[name] && !strings.HasPrefix(name, "tcp_") {
			lost = append(lost, fmt.Sprintf("%s is %q", name, value))
		}
		return nil
	})
	return lost, err
}

// checkLogin warns if somebody between the relay and PostgreSQL could read the connection, or
// answer in the server's place: a role with REPLICATION can read the whole database.
func (c *checker) checkLogin(ctx context.Context) {
	const name = "postgres login"
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		c.addResult(name, "", err)
		return
	}
	defer conn.Release()
	pg := conn.Conn().PgConn()
	detail, warn := judgeLogin(&conn.Conn().Config().Config, pg.Conn())
	if !warn {
		c.addResult(name, detail, nil)
		return
	}
	c.addWarning(name, detail, fixLogin(c.cfg.URL, pg.Conn()))
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
	// with a bound channel a login through somebody in between fails
	if cfg.ChannelBinding == "require" || verifiesServer(cfg) {
		return ""
	}
	return "over TLS, and source.url permits a server that is not verified: whoever is in between may answer in its place"
}

// verifiesServer reports whether the configuration permits no server but the one of its name. Of
// sslmode, prefer and allow permit two things; several hosts are one after the other; and sockets
// of this machine have no TLS.
func verifiesServer(cfg *pgconn.Config) bool {
	verified := func(host string, t *tls.Config) bool {
		return strings.HasPrefix(host, "/") || t != nil && !t.InsecureSkipVerify
	}
	return verified(cfg.Host, cfg.TLSConfig) && !slices.ContainsFunc(cfg.Fallbacks, func(f *pgconn.FallbackConfig) bool { return !verified(f.Host, f.TLSConfig) })
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
