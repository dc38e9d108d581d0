// The database and the relay that the rows are measured on, whatever the broker.
package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// stand is one PostgreSQL with a database and the relay's binary; a broker comes to it in rabbit.go
// and kafka.go. It is used by one goroutine.
type stand struct {
	opt    options
	size   sizes
	began  time.Time
	say    func(format string, args ...any) // progress
	pg     *pgserver.Postgres
	binary string
	env    []string // of relays, besides this process's

	brokerPid int
	// URL of the database with the outbox table, and after initSlot the slot and the publication
	// "bench"
	db   string
	runs int64 // numbers the runs, as a part of the events' ids
}

// start builds the relay, and starts PostgreSQL with the database "bench".
func (s *stand) start(ctx context.Context) (err error) {
	s.say("building the relay, starting the servers")
	if s.binary, err = runner.Binary(); err != nil {
		return err
	}
	// A run should meet no checkpoint, no vacuum and no disk of its own.
	s.pg, err = pgserver.Start(ctx, pgserver.Options{NoFsync: true, Settings: map[string]string{
		"autovacuum": "off", "shared_buffers": "256MB", "max_wal_size": "16GB", "checkpoint_timeout": "1h", "bgwriter_lru_maxpages": "0",
	}})
	if err != nil {
		return err
	}
	s.db, err = s.database(ctx, "bench", fillSQL)
	return err
}

// initSlot has the relay make its slot and its publication.
func (s *stand) initSlot(ctx context.Context, config string) error {
	return s.runInit(ctx, config, "--no-backfill")
}

// firstSlot is initSlot where all rows share a slot.
func (s *stand) firstSlot(ctx context.Context, config string) error {
	if s.opt.base != "" {
		return nil
	}
	return s.initSlot(ctx, config)
}

func (s *stand) runInit(ctx context.Context, config string, flags ...string) error {
	made, err := runner.RunCommand(ctx, s.binary, config, append([]string{"init"}, flags...)...)
	if err == nil && made.Code != 0 {
		err = fmt.Errorf("run cdc-relay init: exit code %d: %s", made.Code, made.Stderr)
	}
	return err
}

// resetSlot drops the slot with all that waits for it, and makes it again.
func (s *stand) resetSlot(ctx context.Context, config string) error {
	dropped, err := runner.RunCommand(ctx, s.binary, config, "teardown", "--yes", "--force")
	if err == nil && dropped.Code != 0 {
		err = fmt.Errorf("run cdc-relay teardown: exit code %d: %s", dropped.Code, dropped.Stderr)
	}
	if err != nil {
		return err
	}
	return s.initSlot(ctx, config)
}

// past reports whether the run is older than d. The full matrix has all the time it needs.
func (s *stand) past(d time.Duration) bool { return !s.opt.full && time.Since(s.began) > d }

// close ends PostgreSQL, if it was started.
func (s *stand) close() error {
	if s.pg == nil {
		return nil
	}
	return s.pg.Close()
}

// database makes a database with an outbox table and whatever sql makes besides, and returns its
// URL.
func (s *stand) database(ctx context.Context, name, sql string) (string, error) {
	if err := s.pg.CreateDatabase(ctx, name); err != nil {
		return "", err
	}
	db := s.pg.URL(name)
	if err := load.CreateOutbox(ctx, db); err != nil {
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

// ask reads one value of the database.
func (s *stand) ask(ctx context.Context, into any, sql string) error {
	conn, err := pgx.Connect(ctx, s.db)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := conn.QueryRow(ctx, sql).Scan(into); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// source is the part of the relay's configuration that names the database.
func (s *stand) source() string {
	return fmt.Sprintf("source:\n  url: %s\n  slot: bench\n  publication: bench\n", s.db)
}

// startRelay starts the relay and waits for nothing.
func (s *stand) startRelay(config string) (*runner.Relay, error) {
	return runner.LaunchRelayIn(s.env, s.binary, config)
}

// stopRelay stops it in order, so that the next one repeats nothing.
func (s *stand) stopRelay(r *runner.Relay) error {
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

// withRelay starts the relay, has do use it, and stops it in order. After an error it is killed,
// and its log is in the error.
func (s *stand) withRelay(config string, do func(*runner.Relay) error) error {
	relay, err := s.startRelay(config)
	if err != nil {
		return err
	}
	if err := do(relay); err != nil {
		return errors.Join(fmt.Errorf("%w: %s", err, relay.Log()), relay.Kill())
	}
	return s.stopRelay(relay)
}

// ready waits until the relay streams.
func ready(ctx context.Context, relay *runner.Relay) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return relay.WaitReady(bounded)
}

// alive gives an error when the process has ended.
func alive(r process) func() error {
	return func() error {
		if r.Running() {
			return nil
		}
		return errors.New("the process has ended")
	}
}
