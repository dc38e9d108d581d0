// The other end: an inbox whose handler writes a row for each event.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

const (
	// inboxConcurrency is how many messages are in their handler at once.
	inboxConcurrency = 16
	// inboxPrefetch is how many messages RabbitMQ gives an inbox that are not acknowledged.
	inboxPrefetch = 4 * inboxConcurrency
)

// effects is a service with an inbox. It notes the effects that it has committed: an event arrives
// there when its row is committed.
type effects struct {
	into    *arrivals
	pool    *pgxpool.Pool
	drop    func() error
	running func(context.Context) error
	stop    context.CancelFunc
	ended   chan error
}

// newEffects makes the service's database and its place at the broker.
func newEffects(ctx context.Context, s *stand, into *arrivals, service string, declare func(context.Context, *inbox.Inbox) (run func(context.Context) error, err error)) (_ *effects, err error) {
	const name = "effects"
	if err := s.pg.CreateDatabase(ctx, name); err != nil {
		return nil, err
	}
	e := &effects{into: into, drop: func() error { return s.pg.DropDatabase(context.WithoutCancel(ctx), name) }}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	err = pgserver.OnConn(ctx, s.pg.URL(name), func(conn *pgx.Conn) error {
		_, err := conn.PgConn().Exec(ctx, inbox.Schema("")+"CREATE TABLE notifications (id bigserial PRIMARY KEY, customer text, text text)").ReadAll()
		return err
	})
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(s.pg.URL(name))
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.ConnConfig.Tracer = inboxConcurrency, e
	if e.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	in, err := inbox.New(inbox.Config{Service: service, Pool: e.pool, Handler: e.handle})
	if err == nil {
		e.running, err = declare(ctx, in)
	}
	return e, err
}

// run has the service receive until close.
func (e *effects) run(ctx context.Context) {
	ctx, e.stop = context.WithCancel(ctx)
	e.ended = make(chan error, 1)
	go func() {
		err := e.running(ctx)
		if err != nil {
			e.into.fail(err)
		}
		e.ended <- err
	}()
}

func (e *effects) close() (err error) {
	if e.stop != nil {
		e.stop()
		err = <-e.ended
	}
	if e.pool != nil {
		e.pool.Close()
	}
	return errors.Join(err, e.drop())
}

// handle writes the effect. The transaction's connection carries what its COMMIT says.
func (e *effects) handle(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	_, err := tx.Exec(ctx, "INSERT INTO notifications (customer, text) VALUES ($1, $2)", m.Key, string(m.Payload))
	tx.Conn().PgConn().CustomData()["message"] = m
	return err
}

type commits struct{}

// TraceQueryStart and TraceQueryEnd see the answer to COMMIT.
func (e *effects) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if q.SQL == "commit" {
		return context.WithValue(ctx, commits{}, time.Now())
	}
	return ctx
}

func (e *effects) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, q pgx.TraceQueryEndData) {
	m, ok := conn.PgConn().CustomData()["message"].(inbox.Message)
	if ok && q.Err == nil && ctx.Value(commits{}) != nil {
		e.into.add(m.ID, m.Key, m.Payload, true)
	}
}
