package inbox

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

type created struct{ Total int }

func TestRouter(t *testing.T) {
	var called []string
	note := func(name string) func(context.Context, pgx.Tx, created) error {
		return func(ctx context.Context, _ pgx.Tx, event created) error {
			if m := MessageOf(ctx); event.Total != 5 || m.Type != "created" {
				t.Errorf("%s has %+v of %+v", name, event, m)
			}
			called = append(called, name)
			return nil
		}
	}
	routers := map[Unknown]*Router[pgx.Tx]{Reject: NewRouter(Reject), Ignore: NewRouter(Ignore)}
	for _, r := range routers {
		On(r, "order.created", note("order.created"))
		On(r, "created", note("created"))
		On(r, "renamed", func(_ context.Context, _ pgx.Tx, m *Message) error {
			if m.Key != "7" {
				t.Errorf("renamed has %+v", m)
			}
			called = append(called, "renamed")
			return nil
		})
		On(r, "removed", func(ctx context.Context, _ pgx.Tx, m Message) error {
			if m.Key != "7" || MessageOf(ctx).Key != "7" {
				t.Errorf("removed has %+v", m)
			}
			called = append(called, "removed")
			return nil
		})
	}
	const body = `{"total": 5, "other": {}}`
	for _, c := range []struct {
		unknown         Unknown
		message         Message
		handler, refuse string
	}{
		{Reject, Message{Aggregate: "order", Type: "created", Payload: []byte(body)}, "order.created", ""},
		{Reject, Message{Aggregate: "parcel", Type: "created", Payload: []byte(body)}, "created", ""},
		{Reject, Message{Type: "created", Payload: []byte(body)}, "created", ""},
		{Reject, Message{Aggregate: "order", Type: "cancelled", Payload: []byte(body)}, "", `no handler for the type "cancelled" of "order"`},
		{Ignore, Message{Aggregate: "order", Type: "cancelled", Payload: []byte(body)}, "", ""},
		{Ignore, Message{Type: "created", Payload: []byte(`{"total": "five"}`)}, "", `decode the payload of "created" as inbox.created`},
		{Ignore, Message{Type: "created"}, "", `decode the payload`}, // a tombstone
		{Ignore, Message{Type: "removed", Key: "7"}, "removed", ""},  // one that is expected
		{Ignore, Message{Type: "renamed", Key: "7"}, "renamed", ""},
	} {
		called = nil
		err := routers[c.unknown].Handle(t.Context(), nil, c.message)
		if got := strings.Join(called, " "); got != c.handler {
			t.Errorf("%+v: called %q, want %q", c.message, got, c.handler)
		}
		if (err != nil) != (c.refuse != "") || err != nil && (!errors.Is(err, ErrPermanent) || !strings.Contains(err.Error(), c.refuse)) {
			t.Errorf("%+v: %v, want %q", c.message, err, c.refuse)
		}
		if err != nil && strings.Contains(err.Error(), ErrPermanent.Error()) {
			t.Errorf("the reason repeats the class: %v", err)
		}
	}
}

func TestTypeWithTwoHandlers(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the second one is accepted")
		}
	}()
	r := NewRouter(Ignore)
	for range 2 {
		On(r, "created", func(context.Context, pgx.Tx, created) error { return nil })
	}
}
