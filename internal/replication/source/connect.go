// The connections to the database, the pool and the replication connection, and the settings of
// their sessions. Settings of the role or the database could change what the relay sends, or end
// its sessions, so every session sets its own.

package source

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/socket"
	"github.com/cdc-relay/cdc-relay/internal/secretfile"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// ReadBuffer is the size in bytes of the replication connection's read buffer: with pgproto3's own
// 8 KiB a backlog of large transactions needs three times as many reads.
const ReadBuffer = 512 << 10

// pinnedSettings are the settings of every session of the relay: those of a role or database could
// change what the relay sends (bytea_output, DateStyle, …), which tables it means (search_path) or
// how its statements are read, or could end an idle session, such as the one that holds the
// snapshot of a new slot.
func pinnedSettings(application string) map[string]string {
	return map[string]string{
		"application_name":   application,
		"client_encoding":    "UTF8",
		"bytea_output":       "hex",
		"DateStyle":          "ISO, YMD",
		"IntervalStyle":      "postgres",
		"TimeZone":           "UTC",
		"extra_float_digits": "1",
		"search_path":        "pg_catalog",

		"client_min_messages":                 "warning", // one of them means lost rows
		"standard_conforming_strings":         "on",
		"idle_session_timeout":                "0",
		"idle_in_transaction_session_timeout": "0",
		// the role's default may be read-only although the server is not
		"default_transaction_read_only": "off",
	}
}

// Settings are the settings of the pool's sessions: pinned, and others on which the relay's
// statements rely.
func Settings(application string) map[string]string {
	all := pinnedSettings(application)
	maps.Copy(all, map[string]string{
		"synchronous_commit":            "on",
		"default_transaction_isolation": "read committed", // what the fence's FOR SHARE relies on
		// a policy must not hide rows from the count of the first start
		"row_security": "off",
		// statements take milliseconds: compiling one takes a hundred
		"jit":               "off",
		"statement_timeout": "15s",
		"lock_timeout":      "5s",
		// A process that is frozen in a transaction must not keep its locks: an ALTER TABLE waits
		// for them, and all INSERTs wait for that. The longest that a transaction rightly waits for
		// its client is until the pool has a new connection (connectTimeout): countInSnapshot may
		// need one between two statements. Those of a copy wait longer, and set their own: see
		// recovery.
		"idle_in_transaction_session_timeout": "15s",
		// A client that is silent for a minute is given up: one that has vanished with its host, by
		// keepalives, and one that takes nothing of what it is sent, by tcp_user_timeout. A frozen
		// one acknowledges all the same, and its session is not idle: no other timeout, and no
		// client_connection_check_interval, interrupts a backend that waits to send. Over a Unix
		// socket nothing does.
		"tcp_keepalives_idle":     "30",
		"tcp_keepalives_interval": "10",
		"tcp_keepalives_count":    "3",
		"tcp_user_timeout":        Milliseconds(time.Minute),
	})
	return all
}

// Milliseconds writes a time as the server's settings have it.
func Milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Connect makes a pool for operator commands, with the relay's own settings, and checks that the
// server answers.
func Connect(ctx context.Context, c Config) (*pgxpool.Pool, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	pool, err := ConnectPool(&c)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to PostgreSQL: %w", OrFatal(&c, OneLine(err)))
	}
	return pool, nil
}

// ConnectPool makes the pool that everything but the stream uses. It does not connect yet.
func ConnectPool(c *Config) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		// pgconn removes the password from its text
		return nil, &event.Stop{Code: event.ExitUsage, Reason: "config", What: "cannot parse source.url", Err: err}
	}
	maps.Copy(cfg.ConnConfig.RuntimeParams, Settings(c.ApplicationName()))
	cfg.ConnConfig.RuntimeParams["tcp_user_timeout"] = Milliseconds(c.SilenceLimit())
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	// A statement ends soon after its client has gone, with its snapshot and its locks. A server
	// that cannot notice that refuses the setting, so it is sent apart from those of Settings.
	requirePrimary(&cfg.ConnConfig.Config, "; SET client_connection_check_interval = '2s'", c.sameServer)
	cfg.ConnConfig.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return pgproto3.NewFrontend(r, &firstWrite{to: w})
	}
	cfg.MaxConns = PoolConnections
	cfg.MinConns = 0
	// A connection is re-created now and then, so that a smart shutdown of the server is noticed:
	// it waits for existing sessions and refuses new ones.
	cfg.MaxConnLifetime = 30 * time.Second
	cfg.PingTimeout = pingTimeout
	cfg.BeforeConnect = func(ctx context.Context, cc *pgx.ConnConfig) error {
		if err := renewConnConfig(c, cc); err != nil {
			return err
		}
		return setPassword(ctx, c, &cc.Config)
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		sent.RegisterDigests(conn.TypeMap())
		_, err := c.markSession(ctx, conn.PgConn()) // also one that is used beside the pool
		return err
	}
	cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) { return c.markSession(ctx, conn.PgConn()) }
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, fmt.Errorf("make connection pool: %w", err)
	}
	return pool, nil
}

// PoolConnections is the number of connections that the relay has in addition to the replication
// connection. The shutdown watch keeps one, and the retry table's writer and feeder need one each,
// for minutes when a row is very large. All other queries are short and share one, so that a
// session can begin, and be checked, whatever these do. More would only wait for the same rows.
const PoolConnections = 4

const (
	connectTimeout = 10 * time.Second
	// pingTimeout bounds the ping of an idle connection, which may have died unnoticed
	pingTimeout = 5 * time.Second
)

// ClosePool closes the pool, but does not wait long for connections whose server went silent: pgx
// gives each of them 15 s to be cancelled, which a process that was asked to stop does not have.
func ClosePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closePatience):
	}
}

// closePatience is how long ClosePool waits for the pool's connections.
const closePatience = time.Second

// ConnectStream opens the replication connection, for callers that do not wait on its socket.
func ConnectStream(ctx context.Context, c *Config) (*pgconn.PgConn, error) {
	return ConnectReplication(ctx, c, func(r io.Reader, _ syscall.RawConn) io.Reader { return r })
}

// ConnectReplication opens the replication connection and reads it through reader. reader wraps the
// network connection, and may wait on its TCP socket; the socket is nil if the connection has none.
func ConnectReplication(ctx context.Context, c *Config, reader func(io.Reader, syscall.RawConn) io.Reader) (*pgconn.PgConn, error) {
	cfg, err := parseSourceURL(c)
	if err != nil {
		return nil, err
	}
	for name, value := range pinnedSettings(c.ApplicationName()) {
		cfg.RuntimeParams[name] = value
	}
	cfg.RuntimeParams["replication"] = "database"
	var at ServerPosition
	requirePrimary(cfg, "", func(now ServerPosition) error {
		at = now
		return nil
	})
	// The creation of a slot waits for the transactions that are open, however long they are.
	cfg.RuntimeParams["statement_timeout"] = "0"
	cfg.RuntimeParams["lock_timeout"] = "0"
	cfg.RuntimeParams["wal_sender_timeout"] = strconv.FormatInt(c.WALSenderTimeout.Milliseconds(), 10)
	cfg.ConnectTimeout = connectTimeout
	if err := setPassword(ctx, c, cfg); err != nil {
		return nil, err
	}
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return socket.Quiet(conn), nil
	}
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		stream := bufio.NewReaderSize(reader(r, socketOf(w)), ReadBuffer)
		if c.MaxEventBytes > 0 {
			return pgproto3.NewFrontend(newLargeRowReader(stream, c.MaxEventBytes), &firstWrite{to: w})
		}
		return pgproto3.NewFrontend(stream, &firstWrite{to: w})
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	// of the last address that was tried: the one that is connected
	conn.CustomData()[serverKey] = at
	return conn, nil
}

// socketOf returns the TCP socket of a connection of pgconn, also under TLS; nil means that it has
// none. (DialFunc would not do: pgconn also calls it to cancel, beside the next address.
// TestSeveralHosts.)
func socketOf(conn any) syscall.RawConn {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	var tcp *net.TCPConn
	switch conn := conn.(type) {
	case *net.TCPConn:
		tcp = conn
	case *socket.Conn:
		tcp = conn.TCPConn
	default:
		return nil
	}
	sock, err := tcp.SyscallConn()
	if err != nil { // it is closed
		return nil
	}
	return sock
}

// setPassword asks for the password again at each connect, so that a rotated secret is used from
// the next connect on.
func setPassword(ctx context.Context, c *Config, cfg *pgconn.Config) error {
	if c.Password == nil {
		return nil
	}
	password, err := c.Password(ctx)
	if err != nil {
		return fmt.Errorf("read source.password: %w", err)
	}
	if password != "" {
		cfg.Password = password
	}
	return nil
}

// CloseStream ends a connection that was not hijacked.
func CloseStream(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing is lost with it
}

// parseSourceURL reads source.url and the files that it names (sslrootcert, sslcert, sslkey,
// passfile, servicefile). It is called for each connection, so that renewed files are taken up
// without a restart.
func parseSourceURL(c *Config) (*pgconn.Config, error) {
	cfg, err := pgconn.ParseConfig(c.URL)
	if err != nil {
		var parse *pgconn.ParseConfigError
		if errors.As(err, &parse) && parse.Unwrap() != nil {
			err = parse.Unwrap() // without the URL
		}
		return nil, fmt.Errorf("%w: %w", errURLFiles, err)
	}
	if err := secretfile.CheckPostgres(c.URL); err != nil {
		return nil, fmt.Errorf("%w: %w", errURLFiles, err)
	}
	alwaysSendCertificate(cfg.TLSConfig)
	for _, f := range cfg.Fallbacks {
		alwaysSendCertificate(f.TLSConfig)
	}
	return cfg, nil
}

// errURLFiles does not end the relay: source.url was valid at the start, and a file that is being
// replaced is soon complete.
var errURLFiles = errors.New("read the files of source.url")

// alwaysSendCertificate sends the client certificate regardless of who signed it, as libpq does. Go
// does not send a certificate that none of the server's CAs signed, and the server would then
// report a missing certificate instead of a wrong one.
func alwaysSendCertificate(cfg *tls.Config) {
	if cfg == nil || len(cfg.Certificates) == 0 {
		return
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cfg.Certificates[0], nil }
}

// firstWrite is the writing end of a connection. With TLS 1.3 a server refuses a client certificate
// when the handshake is already over for the client, and closes the connection. The first write may
// then fail with a reset that explains nothing, although the server's alert can still be read:
// firstWrite reads the alert and returns it as the error.
type firstWrite struct {
	to   io.Writer
	done bool
}

// Write writes p. If the first write fails, it looks for the server's alert.
func (w *firstWrite) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	conn, secure := w.to.(*tls.Conn)
	if err != nil && secure && !w.done { // later, another goroutine reads
		if _, alert := conn.Read(make([]byte, 1)); isAlert(alert) {
			err = alert
		}
	}
	w.done = true
	return n, err
}

// isAlert reports whether err is a TLS alert of the other end.
func isAlert(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "remote error"
}

// renewConnConfig gives a new connection of the pool the current values of source.url and its
// files.
func renewConnConfig(c *Config, cc *pgx.ConnConfig) error {
	fresh, err := parseSourceURL(c)
	if err != nil {
		return err
	}
	cc.Host, cc.Port, cc.TLSConfig, cc.Fallbacks, cc.Password = fresh.Host, fresh.Port, fresh.TLSConfig, fresh.Fallbacks, fresh.Password
	// a service file may have gained them
	cc.RequireAuth, cc.ChannelBinding = fresh.RequireAuth, fresh.ChannelBinding
	return nil
}

// Role is the role as which the relay logs in.
func (c *Config) Role() string {
	cfg, err := parseSourceURL(c)
	if err != nil {
		return "ROLE" // cannot be: it has connected
	}
	return cfg.User
}
