package rabbit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// A message that is delivered twice has its effect once.
func TestEffectOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	r.publish(event("1", "a"), event("1", "a"), event("2", "a"))
	r.run(c)
	r.wantEffects("1", "2")
}

// Messages of a Debezium profile have their id in a header, in the form that the profile chooses.
// They do not say which have one key, so one is handled at a time, in their order. One that fails
// has its id at the next attempt and as a dead letter, too.
func TestDebeziumProfile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inbox.Concurrency = 4
	var running atomic.Int32
	var together, fixed atomic.Bool
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if running.Add(1) > 1 {
			together.Store(true)
		}
		defer running.Add(-1)
		if err := effect(ctx, tx, m); err != nil || fixed.Load() || m.ID != "bad" {
			return err
		}
		return fmt.Errorf("attempt %d: %w", m.Attempt, inbox.ErrPermanent)
	}
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	ids := []any{"bad", "a", `"b"`, []byte("c"), `{"schema":{"type":"string","optional":false,"name":"io.debezium.data.Uuid","version":1},"payload":"d"}`, "8", `{"schema":{"type":"int64","optional":false},"payload":9}`}
	want := []string{"a", "b", "c", "d", "8", "9"}
	for n := range 20 {
		ids, want = append(ids, fmt.Sprint(100+n)), append(want, fmt.Sprint(100+n))
	}
	for _, id := range ids {
		m := amqp.Publishing{Body: []byte("{}"), Headers: amqp.Table{"id": id}}
		r.publish(m, m)
	}
	r.run(c)
	r.wantEffects(want...)
	r.depthOf("mailer.dlq", 2)
	fixed.Store(true)
	if n, err := c.Replay(r.ctx, inbox.ReplayFilter{ID: "bad"}); n != 2 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	r.wantEffects(append(want, "bad")...)
	if together.Load() {
		t.Error("messages were handled at once")
	}
}
