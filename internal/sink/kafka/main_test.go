package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

func TestMain(m *testing.M) { devenv.Main(m) }

// within is the timeout of requests that are answered.
const within = time.Minute

// someEvent is an ordinary event, the i-th of a transaction.
func someEvent(i int, key string) *outbox.Event {
	ev := &outbox.Event{
		Position:    outbox.Position{Commit: pglogrepl.LSN(0x1a2b3c4d), Index: uint32(i)},
		Time:        time.UnixMilli(1_700_000_000_000 + int64(i)),
		ID:          fmt.Appendf(nil, "00000000-0000-4000-8000-%012d", i),
		Aggregate:   []byte("order"),
		Type:        []byte("OrderCreated"),
		Payload:     []byte(`{"order": 1}`),
		Traceparent: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
		Hash:        uint64(i) * 0x9e3779b97f4a7c15,
	}
	if key != "" {
		ev.Key, ev.Ordered = []byte(key), true
	}
	return ev
}

func template(t testing.TB, text string) sink.Template {
	t.Helper()
	tpl, err := sink.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

// layoutOf is the layout of a configuration that is in order.
func layoutOf(t testing.TB, cfg Config) *layout {
	t.Helper()
	if len(cfg.Brokers) == 0 {
		cfg.Brokers = []string{"localhost:9092"}
	}
	if cfg.Topic.String() == "" {
		cfg.Topic = template(t, "events")
	}
	cfg.defaults()
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	l, err := newLayout(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
