package replication

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// readBuffer is the size in bytes of the replication connection's read buffer: with pgproto3's own 8 KiB a backlog of
// large transactions needs three times as many reads.
const readBuffer = 512 << 10

// pinned are the settings of every session of ours: a role's or database's own would change what the relay sends
// (bytea_output, DateStyle, …), which tables it means (search_path), how our texts are read, or end a session that has
// nothing to do, be it the one that holds the snapshot of a new slot.
func pinned(application string) map[string]string {
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
		"default_transaction_read_only":       "off", // a role that is read-only by itself is not a server that is
	}
}

// settings are those of the pool's sessions: pinned, and what statements of ours count on.
func settings(application string) map[string]string {
	all := pinned(application)
	maps.Copy(all, map[string]string{
		"synchronous_commit":            "on",
		"default_transaction_isolation": "read committed", // what the fence's FOR SHARE relies on
		"row_security":                  "off",            // a policy must not hide rows from the question of the first start
		"jit":                           "off",            // statements take milliseconds: compiling one takes a hundred
		"statement_timeout":             "15s",
		"lock_timeout":                  "5s",
	})
	return all
}

// Connect makes a pool for the commands of operators, with the settings of the relay's own, and sees that the server answers.
func Connect(ctx context.Context, c Config) (*pgxpool.Pool, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	pool, err := connectPool(&c)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to PostgreSQL: %w", fatalOr(&c, oneLine{err}))
	}
	return pool, nil
}

// oneLine is an error in one line. pgconn's has one for each address that was tried, the same twice when it was with and without
// TLS.
type oneLine struct{ error }

func (e oneLine) Error() string {
	lines := strings.Split(e.error.Error(), "\n\t")
	return strings.TrimSpace(lines[0] + " " + strings.Join(slices.Compact(lines[1:]), "; "))
}

// Unwrap is the error with its lines.
func (e oneLine) Unwrap() error { return e.error }

// connectPool makes the pool that everything but the stream uses. It does not connect yet.
func connectPool(c *Config) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, badURL(err)
	}
	maps.Copy(cfg.ConnConfig.RuntimeParams, settings(c.applicationName()))
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	onlyPrimary(&cfg.ConnConfig.Config, c.sameServer)
	cfg.ConnConfig.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return pgproto3.NewFrontend(r, &firstWrite{to: w})
	}
	cfg.MaxConns = poolConnections
	cfg.MinConns = 0
	// A connection is made anew now and then, so that a smart shutdown of the server, which waits for the sessions it
	// has and refuses new ones, is seen.
	cfg.MaxConnLifetime = 30 * time.Second
	cfg.PingTimeout = pingTimeout
	cfg.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error {
		if err := renew(c, cc); err != nil {
			return err
		}
		return setPassword(c, &cc.Config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, fmt.Errorf("make connection pool: %w", err)
	}
	return pool, nil
}

// poolConnections is how many connections the relay has next to the replication connection: the shutdown watch keeps one, the
// retry table's writer and its reader need one each, and everything else asks briefly between them. More would only wait for
// the same rows.
const poolConnections = 3

const (
	connectTimeout = 10 * time.Second
	pingTimeout    = 5 * time.Second // of a connection that lay idle: it may have died without a sign
	// answerTimeout bounds, on our side, what the server bounds with statement_timeout: one that went silent bounds nothing.
	answerTimeout = 20 * time.Second
)

// closePool closes the pool, but does not wait long for connections whose server went silent: pgx gives each of them 15 s
// to be cancelled, which a process that was asked to stop does not have.
func closePool(pool *pgxpool.Pool) {
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

const closePatience = time.Second

// connectStream opens the replication connection; a gulp paces its reads.
func connectStream(ctx context.Context, c *Config) (*pgconn.PgConn, error) {
	cfg, err := parseURL(c)
	if err != nil {
		return nil, err
	}
	for name, value := range pinned(c.applicationName()) {
		cfg.RuntimeParams[name] = value
	}
	cfg.RuntimeParams["replication"] = "database"
	var at sighting
	onlyPrimary(cfg, func(now sighting) error {
		at = now
		return nil
	})
	// The creation of a slot waits for the transactions that are open, however long they are.
	cfg.RuntimeParams["statement_timeout"] = "0"
	cfg.RuntimeParams["lock_timeout"] = "0"
	cfg.RuntimeParams["wal_sender_timeout"] = strconv.FormatInt(c.WALSenderTimeout.Milliseconds(), 10)
	cfg.ConnectTimeout = connectTimeout
	if err := setPassword(c, cfg); err != nil {
		return nil, err
	}
	var pace *gulp
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		pace = &gulp{from: r}
		return pgproto3.NewFrontend(bufio.NewReaderSize(pace, readBuffer), &firstWrite{to: w})
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	// Both are of the last that was tried: that of the connection that was made.
	conn.CustomData()[gulpKey], conn.CustomData()[serverKey] = pace, at
	return conn, nil
}

// gulpKey is where a connection keeps its gulp.
const gulpKey = "gulp"

// setPassword asks for the password anew, so that a rotated secret is used from the next connect on.
func setPassword(c *Config, cfg *pgconn.Config) error {
	if c.Password == nil {
		return nil
	}
	password, err := c.Password()
	if err != nil {
		return fmt.Errorf("read source.password: %w", err)
	}
	if password != "" {
		cfg.Password = password
	}
	return nil
}

// closeStream ends a connection that was not hijacked.
func closeStream(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing is lost with it
}
