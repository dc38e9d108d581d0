//go:build testall

package python

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// Consumers in Go and in Python take turns: neither finds the topology to differ, what one has
// processed is a duplicate for the other, attempts are counted on, and the dead letters of one are
// replayed by the other.
func TestTurnsWithGo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no mail today'; END $$;
		CREATE TRIGGER fail BEFORE INSERT ON notifications FOR EACH ROW WHEN (NEW.message_id = 'never') EXECUTE FUNCTION fail()`)
	failed := make(chan struct{})
	closeFailed := sync.OnceFunc(func() { close(failed) })
	c := r.inGo(func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if m.ID == "never" {
			closeFailed()
			return fmt.Errorf("send mail: %w", inbox.ErrTransient)
		}
		_, err := tx.Exec(ctx, "INSERT INTO notifications (message_id, order_id, total) VALUES ($1, '', 0)", m.ID)
		return err
	})
	await.Must(t, c.Declare(r.ctx))
	ctx, stop := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() {
		err := c.Run(ctx)
		if err != nil {
			t.Errorf("run the consumer in Go: %v", err)
		}
		ended <- err
	}()
	r.publish("never", order("1"))
	r.publish("both", order("2"))
	r.publish("numbers", order("2"))
	await.Closed(t, "the first attempt", failed)
	r.processed("both")
	r.processed("numbers")
	stop()
	await.Must(t, <-ended)

	p := r.start()
	logged := func(line string) int { return strings.Count(processes.ReadLog(p.LogPath), line) }
	r.publish("both", order("2"))
	r.publish("numbers", order("2"))
	r.publish("poison", "{}")
	await.Until(t, "two dead letters", func() bool { return r.queue(service+".dlq").Messages == 2 }, func() any { return processes.ReadLog(p.LogPath) })
	n, err := c.Replay(r.ctx, inbox.ReplayFilter{Class: inbox.Permanent})
	if err != nil || n != 1 {
		t.Fatalf("replayed %d messages: %v", n, err)
	}
	await.Until(t, "the replayed message to die again", func() bool { return logged("message poison: dlq") == 2 })
	for _, want := range []struct {
		id, class string
		attempts  int
	}{{"never", "transient", 3}, {"poison", "permanent", 1}} {
		d := r.dead()
		if d.MessageId != want.id {
			t.Errorf("the dead letter is of %s, want %s", d.MessageId, want.id)
		}
		check(t, d, want.class, want.attempts)
	}
	for _, id := range []string{"both", "numbers"} {
		if n := r.effects(id); n != 1 || logged("message "+id+": duplicate") != 1 {
			t.Errorf("message %s has %d effects:\n%s", id, n, processes.ReadLog(p.LogPath))
		}
	}
}

// inGo is a consumer of the same service in Go.
func (r *rig) inGo(handler inbox.Handler) *rabbit.Consumer {
	r.t.Helper()
	pool, err := pgxpool.New(r.ctx, r.database)
	await.Must(r.t, err)
	r.t.Cleanup(pool.Close)
	in, err := inbox.New(inbox.Config{
		Service: service, Pool: pool, Handler: handler, Levels: []time.Duration{time.Second, 2 * time.Second},
		Registerer: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	await.Must(r.t, err)
	c, err := rabbit.New(in, rabbit.Config{URL: r.vhost, Bindings: []rabbit.Binding{{Exchange: "outbox.events", Key: "#"}}})
	await.Must(r.t, err)
	return c
}
