// Package core tests the package inbox between real servers: this is what its tests share, a schema
// of a test's own, an inbox on it, and a publisher that records.
package core

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// rig is a service: its schema has the table effects, in which write leaves a row.
type rig struct {
	*inbox.Inbox
	cfg       inbox.Config
	pool      *pgxpool.Pool
	published publisher
	said      text
}

// newRig makes a service. change may be nil.
func newRig(t *testing.T, handler inbox.Handler, change func(*inbox.Config)) *rig {
	t.Helper()
	return newRigAt(t, newSchema(t), handler, change)
}

// newSchema makes a schema for a test, and returns the address of the database with it. Sessions
// have its name, too. It goes with the database.
func newSchema(t *testing.T) string {
	t.Helper()
	url, name := os.Getenv("DATABASE_URL"), "t"+strings.ToLower(rand.Text()[:12])
	await.Must(t, pgserver.OnConn(t.Context(), url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), "CREATE SCHEMA "+name)
		return err
	}))
	return url + "&search_path=" + name + "&application_name=" + name
}

// newRigAt makes the tables in an empty schema.
func newRigAt(t *testing.T, url string, handler inbox.Handler, change func(*inbox.Config)) *rig {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	await.Must(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), inbox.Schema("")+"CREATE TABLE effects (id text NOT NULL)")
	await.Must(t, err)
	r := &rig{pool: pool}
	r.cfg = inbox.Config{
		Service: "notifier", Pool: pool, Handler: handler, Levels: []time.Duration{time.Second, time.Minute},
		Log: slog.New(slog.NewTextHandler(&r.said, nil)), Registerer: prometheus.NewRegistry(),
	}
	if change == nil {
		change = func(*inbox.Config) {}
	}
	r.change(t, change)
	return r
}

// change makes the inbox again, with another configuration.
func (r *rig) change(t *testing.T, change func(*inbox.Config)) {
	t.Helper()
	change(&r.cfg)
	in, err := inbox.New(r.cfg)
	await.Must(t, err)
	r.Inbox = in
}

// write is the handler of most tests.
func write(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", m.ID)
	return err
}

// handle handles a message as a package does that receives it.
func (r *rig) handle(ctx context.Context, m inbox.Message) error {
	return r.Transport("rabbitmq").Handle(ctx, m, &r.published)
}

// effects is how often the event has had its effect.
func (r *rig) effects(t *testing.T, id string) int {
	t.Helper()
	return r.count(t, "SELECT count(*) FROM effects WHERE id = $1", id)
}

func (r *rig) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	await.Must(t, r.pool.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

// outcomes is how often cdc_relay_inbox_messages_total has counted an outcome.
func (r *rig) outcomes(o string) int {
	return r.metric(fmt.Sprintf(`cdc_relay_inbox_messages_total{outcome=%q,service="notifier"}`, o))
}

// metric is the value of one series; -1 when it is not there.
func (r *rig) metric(series string) int {
	value := -1
	for line := range strings.Lines(r.gathered()) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			fmt.Sscan(rest, &value)
		}
	}
	return value
}

// gathered is what a scrape of the rig's registry has.
func (r *rig) gathered() string {
	families, err := r.cfg.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&b, family); err != nil {
			return err.Error()
		}
	}
	return b.String()
}

// publisher records what was published. err is what it returns.
type publisher struct {
	mu      sync.Mutex
	retries []inbox.Failure
	dead    []inbox.Failure
	err     error
}

func (p *publisher) Retry(_ context.Context, _ inbox.Message, f inbox.Failure) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retries = append(p.retries, f)
	return p.err
}

func (p *publisher) DeadLetter(_ context.Context, _ inbox.Message, f inbox.Failure) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = append(p.dead, f)
	return p.err
}

// failure is the one that was published: as a dead letter when its level is 0.
func (p *publisher) failure(t *testing.T) inbox.Failure {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.retries)+len(p.dead) != 1 {
		t.Fatalf("published: for later %v, as dead letters %v; want one", p.retries, p.dead)
	}
	if len(p.dead) > 0 {
		if f := p.dead[0]; f.Level != 0 {
			t.Errorf("a dead letter has level %s", f.Level)
		}
		return p.dead[0]
	}
	if p.retries[0].Level == 0 {
		t.Error("a retry has no level")
	}
	return p.retries[0]
}

// text is what was logged.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *text) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *text) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *text) has(what string) bool { return strings.Contains(s.String(), what) }

// quoted is a table's name as SQL has it.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }

var errMailer = errors.New("the mailer is away")

func failing(err error) inbox.Handler {
	return func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		return errors.Join(write(ctx, tx, m), err)
	}
}

func permanent(err error) error { return fmt.Errorf("%w: %w", inbox.ErrPermanent, err) }
