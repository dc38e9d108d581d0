//go:build testall

package dlq

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
)

// silent is a pool of one connection whose server was there and does not answer any more.
func (r *rig) silent() *pgxpool.Pool {
	r.t.Helper()
	c := r.pool.Config()
	u, err := url.Parse(c.ConnString())
	r.must(err)
	proxy, err := netproxy.Start(u.Host)
	r.must(err)
	u.Host = proxy.Addr()
	c, err = pgxpool.ParseConfig(u.String())
	r.must(err)
	c.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(r.ctx, c)
	r.must(err)
	r.t.Cleanup(pool.Close)
	r.t.Cleanup(proxy.Close) // before the pool, which would wait
	r.must(pool.Ping(r.ctx))
	proxy.Hold(netproxy.Down)
	return pool
}

// A server that went silent keeps neither the leader nor the mirror: each statement ends by itself.
func TestSilentServer(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	j := r.start(Bulk{Kind: Discard})
	l := r.leader()
	jobs, err := l.jobs(r.ctx)
	r.must(err)
	if len(jobs) != 1 || jobs[0].id != j.ID {
		t.Fatalf("the jobs are %+v", jobs)
	}
	m := MirrorPostgres{Slot: r.slot, SystemID: r.system(), Epoch: r.epoch()}
	for name, ask := range map[string]func(ctx context.Context) error{
		"jobs":         func(ctx context.Context) error { _, err := l.jobs(ctx); return err },
		"advance":      func(ctx context.Context) error { return l.advance(ctx, &jobs[0], 1) },
		"forget":       l.forget,
		"dead_letters": func(ctx context.Context) error { _, err := m.Unmirrored(ctx, 0, 1, 1); return err },
		"note":         func(ctx context.Context) error { return m.NoteMirrored(ctx, []int64{1}) },
	} {
		pool := r.silent()
		l.db.db, l.db.patience = pool, 200*time.Millisecond
		m.DB, m.patience = pool, 200*time.Millisecond
		if err := ask(r.ctx); err == nil || r.ctx.Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
