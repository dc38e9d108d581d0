// Package inbox consumes events so that each has its effect exactly once.
//
// A broker delivers at least once: after a crash, a lost connection or a replay a message comes
// again. The inbox records each event that was processed in a table of the service's own database,
// in the transaction that has the event's effect. A message whose event is recorded there has had
// its effect, and is only acknowledged.
//
// What the inbox cannot undo is an effect outside of the database: a mail, a call of another
// service. Write down with the transaction what is to be done, and let something do it that may do
// it twice.
//
// The packages inbox/rabbit and inbox/kafka receive the messages; inbox/inboxtest hands them to a
// handler in a test. The database is reached by pgx or by database/sql. Schema returns the
// statements that make the table, for a migration of the service.
//
// # Order
//
// The messages of one aggregate and key are handled one after another, in the order of their queue
// or partition, and those of other keys at the same time. A message that waits for another attempt
// is overtaken by later ones of its key: its handler may find their effects. One without a key has
// no order.
//
// # Errors
//
// A handler that returns an error has no effect, and the message comes again until Config.Levels
// are used up: then, or at once for an ErrPermanent, it is a dead letter. While the database or the
// broker is away nothing is handled, and no attempt counts.
package inbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Handler has the effect of a message. What it writes with tx is committed together with the record
// that the event is processed, or not at all. It must not end tx, must not use it after it has
// returned, and must write with tx alone: what it writes by other means may happen twice. COMMIT or
// ROLLBACK by SQL makes the message a dead letter, but is not noticed when it begins the next
// transaction itself. It must not set synchronous_commit to off.
//
// An error that wraps ErrPermanent makes the message a dead letter at once. After any other error,
// and after a panic of the first attempt, the message is delivered again later: see Config.Levels.
//
// It is called for several messages at once, but by one process never for two of one aggregate and
// key. ctx ends after Config.Timeout, and when the consumer was told to stop and Config.Grace
// has passed: the handler must return then. It carries the message's span.
type Handler func(ctx context.Context, tx pgx.Tx, m Message) error

// HandlerSQL is a Handler for database/sql, with any driver for PostgreSQL. A handler that ends tx
// itself, with Commit, Rollback or by SQL, makes the message a dead letter: what it wrote may be
// there in part. That includes defer tx.Rollback() and a Rollback before a return, which code has
// that began its transaction: return the error instead, and the inbox rolls back. COMMIT by SQL is
// not noticed when the next transaction is begun, and something is written in it.
type HandlerSQL func(ctx context.Context, tx *sql.Tx, m Message) error

// Config is the configuration of an Inbox. Service must be given, and either Pool and Handler or DB
// and HandlerSQL.
type Config struct {
	// Service names the consumer: in the table of processed messages, and in the names of queues,
	// topics and consumer groups. Services of different names each process all messages; processes
	// of one service share them. Another name is another service, which has processed nothing.
	// Up to 100 of a-z, A-Z, 0-9, '.', '_' and '-'.
	Service string
	// Pool has connections to the service's own database, in which the handler's tables are: the
	// table of processed messages must be in the same one. Each message that is processed takes one
	// of its connections. The inbox does not close it: do so after the consumer's Run has returned
	// without saying that handlers still run.
	Pool *pgxpool.Pool
	// Handler is called for each message that is not processed yet.
	Handler Handler
	// DB is what Pool is, for a service that uses database/sql. Its statements have the parameters
	// $1, $2 and so on. A message costs one more of them than with Pool: it asks what the handler
	// has left of the transaction.
	DB *sql.DB
	// HandlerSQL is the handler that goes with DB.
	HandlerSQL HandlerSQL

	// Concurrency is how many messages a process has in its handler at once, by default as many as
	// Pool or DB has connections, and never more. For a DB without SetMaxOpenConns it is by default
	// what a pool of pgx would have: four, or one for each CPU if these are more.
	Concurrency int
	// Levels are the pauses before the second attempt, the third, and so on, in whole seconds. When
	// the attempt after the last one fails, the message becomes a dead letter. By default 30s, 1m,
	// 5m; empty, and not nil: there is one attempt. Later messages of its key overtake one that
	// waits.
	Levels []time.Duration
	// Timeout bounds one attempt, by default 30 seconds.
	Timeout time.Duration
	// Grace is how long the handlers that run may go on when the consumer is told to stop, by
	// default 10 seconds. What has not ended then is rolled back and delivered again.
	Grace time.Duration

	// Table has the processed messages: see Schema. "name" or "schema.name", by default
	// processed_messages. Another table remembers nothing: rename the table, too.
	Table string
	// Keep is how long an event is remembered as processed, by default 30 days, at least an hour
	// and twice the sum of Levels. One that is delivered again after that has its effect again.
	Keep time.Duration

	Log            *slog.Logger          // by default slog.Default()
	Registerer     prometheus.Registerer // of the metrics, by default prometheus.DefaultRegisterer
	TracerProvider trace.TracerProvider  // of the spans, by default that of otel.SetTracerProvider
}

// Inbox processes messages. inbox/rabbit and inbox/kafka receive them for it. Its methods may be
// called concurrently.
type Inbox struct {
	cfg      Config
	db       connections
	sql      *statements
	metrics  *metrics
	tracer   trace.Tracer
	database *availability
}

// serviceName matches names that are valid both for queues and for topics.
var serviceName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,100}$`)

// tableName matches the name of a table, with or without a schema.
var tableName = regexp.MustCompile(`^([^.]+\.)?[^.]+$`)

// New makes an Inbox. It does not connect, and starts nothing. An error names the field of the
// configuration that is wrong.
func New(cfg Config) (*Inbox, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	var db connections = pgxPool{cfg.Pool, cfg.Handler}
	if cfg.DB != nil {
		db = sqlDB{cfg.DB, cfg.HandlerSQL}
	}
	if err := cfg.setDefaults(db.maxConnections()); err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	if least := cfg.leastKeep(); cfg.Keep < least {
		return nil, fmt.Errorf("inbox: Keep is %s: want at least %s, an hour and twice all Levels: what comes again later has its effect again", cfg.Keep, least)
	}
	m, err := newMetrics(cfg.Registerer, cfg.Service, cfg.Levels)
	if err != nil {
		return nil, fmt.Errorf("inbox: register metrics: %w", err)
	}
	return &Inbox{
		cfg: cfg, db: db, sql: newStatements(cfg.Table), metrics: m, tracer: newTracer(cfg.TracerProvider), database: newAvailability(cfg.Log, m.databaseUp),
	}, nil
}

func (cfg *Config) validate() error {
	switch {
	case !serviceName.MatchString(cfg.Service):
		return fmt.Errorf("Service is %q: want up to 100 of a-z, A-Z, 0-9, '.', '_' and '-'", cfg.Service)
	case (cfg.Pool == nil) == (cfg.DB == nil):
		return errors.New("Pool and DB: want one of them")
	case (cfg.Handler == nil) != (cfg.Pool == nil):
		return errors.New("Handler goes with Pool: want both or none")
	case (cfg.HandlerSQL == nil) != (cfg.DB == nil):
		return errors.New("HandlerSQL goes with DB: want both or none")
	case cfg.Concurrency < 0, cfg.Timeout < 0, cfg.Grace < 0, cfg.Keep < 0:
		return errors.New("Concurrency, Timeout, Grace or Keep is negative")
	case cfg.Table != "" && !tableName.MatchString(cfg.Table):
		return fmt.Errorf("Table is %q: want \"name\" or \"schema.name\"", cfg.Table)
	}
	for name, d := range map[string]time.Duration{"Timeout": cfg.Timeout, "Grace": cfg.Grace} {
		if 0 < d && d < time.Millisecond {
			return fmt.Errorf("%s is %s: a number is nanoseconds, write such as 30*time.Second", name, d)
		}
	}
	if i := slices.IndexFunc(cfg.Levels, func(d time.Duration) bool { return d < time.Second || d%time.Second != 0 }); i >= 0 {
		return fmt.Errorf("Levels has %s: want whole seconds", cfg.Levels[i])
	}
	return nil
}

// leastKeep returns how long an event must be remembered at least: a message comes again after each
// of the levels, and may wait in a queue behind each.
func (cfg *Config) leastKeep() time.Duration {
	var all time.Duration
	for _, level := range cfg.Levels {
		all += level
	}
	return max(time.Hour, 2*all)
}

// setDefaults sets the fields that have a default. most is how many connections there may be; 0
// means any number.
func (cfg *Config) setDefaults(most int) error {
	if most > 0 && cfg.Concurrency > most {
		return fmt.Errorf("Concurrency is %d, and the database has %d connections: raise pool_max_conns of Pool, or SetMaxOpenConns of DB", cfg.Concurrency, most)
	}
	cfg.Concurrency = cmp.Or(cfg.Concurrency, most, max(4, runtime.NumCPU()))
	if cfg.Levels == nil {
		cfg.Levels = []time.Duration{30 * time.Second, time.Minute, 5 * time.Minute}
	}
	cfg.Levels = slices.Clone(cfg.Levels)
	for value, preset := range map[*time.Duration]time.Duration{
		&cfg.Timeout: 30 * time.Second, &cfg.Grace: 10 * time.Second, &cfg.Keep: 30 * 24 * time.Hour,
	} {
		if *value == 0 {
			*value = preset
		}
	}
	if cfg.Table == "" {
		cfg.Table = "processed_messages"
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.Log = cfg.Log.With("service", cfg.Service)
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.DefaultRegisterer
	}
	return nil
}
