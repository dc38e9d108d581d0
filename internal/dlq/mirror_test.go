package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// broker is where a mirror publishes in a test: what refuse says, and else confirmed.
type broker struct {
	got    []*event.Event
	refuse func(*event.Event) sink.Outcome
}

func (b *broker) publish(_ context.Context, events []*event.Event) []sink.Outcome {
	outcomes := make([]sink.Outcome, len(events))
	for i, ev := range events {
		if b.refuse != nil {
			outcomes[i] = b.refuse(ev)
		} else {
			outcomes[i] = sink.Outcome{State: sink.Confirmed}
		}
		b.got = append(b.got, ev)
	}
	return outcomes
}

func (b *broker) ids() string {
	var ids []string
	for _, ev := range b.got {
		ids = append(ids, string(ev.ID))
	}
	b.got = nil
	return strings.Join(ids, " ")
}

func (r *rig) mirror(b *broker) *Mirror {
	return NewMirror(MirrorConfig{
		Store: &Term{DB: r.pool, Slot: r.slot, SystemID: r.system(), Epoch: r.epoch()}, Publish: b.publish, Columns: 2,
		Route: event.Route{Name: []byte("outbox.dlx"), RoutingKey: []byte("outbox.dlq")}, Log: zap.NewNop(),
	})
}

func TestMirror(t *testing.T) {
	r := setup(t)
	r.put(sample{id: "a", payload: []byte{0, 255}, routingKey: "eu"})
	r.put(sample{id: "b", state: Replayed})
	r.put(sample{id: "purged", state: Purged})
	r.put(sample{id: "redacted", sealed: true})
	b := &broker{}
	m := r.mirror(b)
	_, err := m.once(r.ctx, time.Now())
	r.must(err)
	ev := b.got[0]
	if got := b.ids(); got != "a b" {
		t.Fatalf("mirrored are %s", got)
	}
	if ev.Position.String() != "00000000000003e8-00000000" || string(ev.Payload) != "\x00\xff" || ev.Ordered || ev.Replay || !ev.Copy || string(ev.Route.Name) != "outbox.dlx" || len(ev.Columns) != 2 {
		t.Errorf("the message is %+v", ev)
	}
	var headers map[string]any
	r.must(json.Unmarshal(ev.Headers, &headers))
	want := map[string]any{
		"event_id": "a", "event_key": "42", "failure_reason": "too_large: body of # bytes", "failure_class": "permanent", "attempts": 1.0,
		"failed_at": "2026-11-20T12:00:01Z", "first_failed_at": "2026-11-20T12:00:01Z", "original_destination": "orders/eu",
	}
	if fmt.Sprint(headers) != fmt.Sprint(want) {
		t.Errorf("the headers are %v, want %v", headers, want)
	}
	if wait, err := m.once(r.ctx, time.Now()); err != nil || len(b.got) != 0 || wait != mirrorTick {
		t.Errorf("again: %d messages, %v", len(b.got), err)
	}
	if value[int](r, `SELECT count(*) FROM cdc_relay.dead_letter WHERE mirrored_at IS NOT NULL`) != 2 {
		t.Error("they are not noted as mirrored")
	}
}

func TestMirrorOfAFormerLeader(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	b := &broker{}
	m := r.mirror(b)
	r.exec(`UPDATE cdc_relay.slots SET epoch = epoch + 1`)
	var stop *event.Stop
	if err := m.Run(r.ctx); !errors.As(err, &stop) || stop.Reason != "fenced" {
		t.Errorf("got %v, want that it is fenced", err)
	}
	if got := b.ids(); got != "" {
		t.Errorf("it has published %s", got)
	}
	if value[int](r, `SELECT count(*) FROM cdc_relay.dead_letter WHERE mirrored_at IS NOT NULL`) != 0 {
		t.Error("it has noted a dead letter")
	}
}

func TestRunsUntilItIsStopped(t *testing.T) {
	r := setup(t)
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan error, 2)
	published := make(chan struct{}, 1)
	b := &broker{refuse: func(*event.Event) sink.Outcome {
		published <- struct{}{}
		return sink.Outcome{State: sink.Confirmed}
	}}
	m := r.mirror(b)
	go func() { done <- m.Run(context.WithoutCancel(ctx)) }()
	go func() { done <- r.leader().Run(ctx) }()
	r.put(sample{})
	<-published
	m.Stop()
	r.must(<-done)
	if value[int](r, `SELECT count(*) FROM cdc_relay.dead_letter WHERE mirrored_at IS NOT NULL`) != 1 {
		t.Error("it was stopped before it had noted what it had published")
	}
	cancel()
	r.must(<-done)
}

// What the leader and the mirror only read takes no row lock and no transaction id: it may run in a
// session that may not write. So looking for work writes nothing, and it waits neither for the
// synchronous standby nor for a raise of the epoch.
func TestReadsLockNothing(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	r.start(Bulk{Kind: Discard})
	c := r.pool.Config()
	c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	pool, err := pgxpool.NewWithConfig(r.ctx, c)
	r.must(err)
	t.Cleanup(pool.Close)
	l, m := r.leader(), Term{DB: pool, Slot: r.slot, SystemID: r.system(), Epoch: r.epoch()}
	l.cfg.DB = pool
	if err := m.NoteMirrored(r.ctx, []int64{1}); source.SQLState(err) != "25006" {
		t.Errorf("the session may write: %v", err)
	}
	r.must(r.beside(`UPDATE cdc_relay.slots SET epoch = epoch + 1`, func() error {
		jobs, err := l.jobs(r.ctx)
		deadLetters, no := m.Unmirrored(r.ctx, 0, 1, 1)
		if len(jobs) != 1 || len(deadLetters) != 1 {
			t.Errorf("%d jobs and %d dead letters", len(jobs), len(deadLetters))
		}
		return errors.Join(err, no)
	}))
}
