// The servers, the database and the relay that the rows are measured on.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// stand is one PostgreSQL, one RabbitMQ, and the way to it that is 2 ms longer. It is used by one goroutine.
type stand struct {
	opt    options
	size   sizes
	began  time.Time
	say    func(format string, args ...any) // progress
	pg     *devenv.Postgres
	rabbit *devenv.Rabbit
	far    *devenv.Proxy // to the broker, 1 ms later in each direction
	binary string

	brokerPid int
	db        string // URL of the database with the outbox table, the slot and the publication "bench"
	runs      int64  // numbers the runs, as a part of the events' ids
}

func newStand(ctx context.Context, opt options, began time.Time, say func(string, ...any)) (_ *stand, err error) {
	s := &stand{opt: opt, size: opt.sizes(), began: began, say: say}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	say("building the relay, starting PostgreSQL and RabbitMQ")
	if s.binary, err = devenv.RelayBinary(); err != nil {
		return nil, err
	}
	// A run should meet no checkpoint, no vacuum and no disk of its own.
	s.pg, err = devenv.StartPostgres(ctx, devenv.PostgresOptions{NoFsync: true, Settings: map[string]string{
		"autovacuum": "off", "shared_buffers": "256MB", "max_wal_size": "16GB", "checkpoint_timeout": "1h", "bgwriter_lru_maxpages": "0",
	}})
	if err != nil {
		return nil, err
	}
	if s.rabbit, err = devenv.StartRabbitMQ(ctx, devenv.RabbitOptions{}); err != nil {
		return nil, err
	}
	if err = s.askBrokerPid(ctx); err != nil {
		return nil, err
	}
	if s.far, err = devenv.StartProxy(s.rabbit.Addr()); err != nil {
		return nil, err
	}
	s.far.Delay(time.Millisecond)
	if s.db, err = s.database(ctx, "bench", fillSQL); err != nil {
		return nil, err
	}
	made, err := devenv.RunCommand(ctx, s.binary, s.config(load{ordering: "key", connections: 1}), "init")
	if err == nil && made.Code != 0 {
		err = fmt.Errorf("run cdc-relay init: exit code %d: %s", made.Code, made.Stderr)
	}
	return s, err
}

// past reports whether the run is older than d. The full matrix has all the time it needs.
func (s *stand) past(d time.Duration) bool { return !s.opt.full && time.Since(s.began) > d }

// close ends everything; what was never started is left out.
func (s *stand) close() error {
	var errs []error
	if s.far != nil {
		s.far.Close()
	}
	if s.rabbit != nil {
		errs = append(errs, s.rabbit.Close())
	}
	if s.pg != nil {
		errs = append(errs, s.pg.Close())
	}
	return errors.Join(errs...)
}

// database makes a database with an outbox table and whatever sql makes besides, and returns its URL.
func (s *stand) database(ctx context.Context, name, sql string) (string, error) {
	if err := s.pg.CreateDatabase(ctx, name); err != nil {
		return "", err
	}
	db := s.pg.URL(name)
	if err := devenv.CreateOutbox(ctx, db); err != nil {
		return "", err
	}
	return db, execSQL(ctx, db, sql)
}

// execSQL runs statements on a connection of its own.
func execSQL(ctx context.Context, db string, statements ...string) error {
	conn, err := pgx.Connect(ctx, db)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// brokerURL is the broker's address, or that of the longer way.
func (s *stand) brokerURL(far bool) string {
	u, err := url.Parse(s.rabbit.URL())
	if err != nil || !far {
		return s.rabbit.URL()
	}
	u.Host = s.far.Addr()
	return u.String()
}

// config is the relay's configuration for a load; connections 0 leaves the default.
func (s *stand) config(l load) string {
	c := fmt.Sprintf(`source:
  url: %s
  slot: bench
  publication: bench
  backfill: false
sink:
  rabbitmq:
    url: %s
    exchange: %s
`, s.db, s.brokerURL(l.far), exchange)
	if l.connections > 0 {
		c += fmt.Sprintf("    connections: %d\n", l.connections)
	}
	return c + fmt.Sprintf("delivery:\n  ordering: %s\n", l.ordering)
}

// startRelay starts the relay and waits for nothing.
func (s *stand) startRelay(l load) (*devenv.Relay, error) {
	return devenv.LaunchRelay(s.binary, s.config(l))
}

// stopRelay stops it in order, so that the next one repeats nothing.
func (s *stand) stopRelay(r *devenv.Relay) error {
	if err := r.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code, err := r.Exit(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("stop relay: exit code %d: %s", code, r.Log())
	}
	return err
}

// alive is an error when the relay has ended.
func alive(r *devenv.Relay) error {
	if r.Running() {
		return nil
	}
	return fmt.Errorf("the relay has ended: %s", r.Log())
}
