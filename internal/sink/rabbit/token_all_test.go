//go:build testall

// OAuth 2 tokens, which expire while a connection stands.

package rabbit

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Once its token has expired a connection is refused every exchange. Nothing is rejected for that,
// whether a new token is there already or comes later.
func TestTokenExpires(t *testing.T) {
	b := ownBroker(t)
	b.takeTokens()
	// so long a name that the broker cuts off what it says about the token
	exchange := strings.Repeat("events.", 14)
	b.exchange(exchange, nil)
	var renews atomic.Bool
	var token atomic.Value
	renews.Store(true)
	cfg := byKey(b)
	// an agent that renews, or is late
	cfg.Logins = &sink.Logins{Read: func(context.Context) (sink.Login, error) {
		if renews.Load() {
			token.Store(b.token(time.Now().Add(3 * time.Second)))
		}
		return sink.Login{User: "any", Password: token.Load().(string)}, nil
	}}
	var reconnects atomic.Int32
	cfg.Connected = func(again bool) {
		if again {
			reconnects.Add(1)
		}
	}
	s := start(t, cfg)
	sent := map[string]bool{}
	// send offers an event until it is confirmed, as a lane does.
	send := func(ev *event.Event) {
		for b.ctx.Err() == nil {
			outcomes := make([]sink.Outcome, 1)
			err := s.Publish(b.ctx, 0, []*event.Event{ev}, outcomes)
			if o := outcomes[0]; o.State == sink.Rejected || err == nil && o.State != sink.Confirmed {
				t.Errorf("%s %+v", o.State, o.Fault)
				return
			}
			if err == nil {
				return
			}
		}
	}
	await.Until(t, "a token to expire", func() bool {
		ev := newEvent(exchange, "created")
		sent[string(ev.ID)] = true
		send(ev)
		return reconnects.Load() > 0 || t.Failed()
	})

	renews.Store(false)
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() && !t.Failed() {
			send(newEvent(exchange, "created"))
		}
	}()
	await.Until(t, "the login to be refused", func() bool {
		_, why := s.Up()
		return strings.Contains(why, "not allowed") || t.Failed()
	})
	renews.Store(true)
	stop.Store(true)
	<-done

	for _, m := range b.take(exchange, b.depth(exchange)) {
		delete(sent, m.MessageId)
	}
	if len(sent) > 0 {
		t.Errorf("%d events are not in the queue", len(sent))
	}
}

// takeTokens has the broker take tokens for passwords, next to its own users, until the test ends.
// A channel forgets the rights it was given, and looks at the token again, ten times a second
// instead of once a minute.
func (b *broker) takeTokens() {
	b.t.Helper()
	plugins := func(names string) {
		b.t.Helper()
		b.eval(`{ok, F} = application:get_env(rabbit, enabled_plugins_file),
			ok = file:write_file(F, "[%s]."), {ok, _, _} = rabbit_plugins:ensure(F).`, names)
	}
	await.Until(b.t, "the end of the broker's start", func() bool { return b.eval("rabbit:is_running().") == "true" })
	plugins("rabbitmq_management, rabbitmq_auth_backend_oauth2")
	b.eval(`application:set_env(rabbitmq_auth_backend_oauth2, resource_server_id, <<"rabbitmq">>),
		application:set_env(rabbitmq_auth_backend_oauth2, key_config, [{signing_keys, #{<<"test">> =>
			{map, #{<<"kty">> => <<"oct">>, <<"k">> => <<"%s">>}}}}]),
		application:set_env(rabbit, auth_backends, [rabbit_auth_backend_internal, rabbit_auth_backend_oauth2]),
		application:set_env(rabbit, channel_tick_interval, 100).`,
		base64.RawURLEncoding.EncodeToString([]byte(tokenKey)))
	b.t.Cleanup(func() {
		b.eval(`application:set_env(rabbit, auth_backends, [rabbit_auth_backend_internal]),
			application:set_env(rabbit, channel_tick_interval, 60000).`)
		plugins("rabbitmq_management")
	})
}

// tokenKey signs tokens; the broker has it, too.
const tokenKey = "a key of thirty-two bytes, or so"

// token is a JSON web token with which one may publish anywhere until it expires.
func (b *broker) token(expires time.Time) string {
	part := func(fields map[string]any) string {
		text, err := json.Marshal(fields)
		if err != nil {
			b.t.Error(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(map[string]any{"alg": "HS256", "typ": "JWT", "kid": "test"}) + "." + part(map[string]any{
		"aud": "rabbitmq", "client_id": "relay", "scope": []string{"rabbitmq.write:*/*/*"}, "exp": expires.Unix(),
	})
	mac := hmac.New(sha256.New, []byte(tokenKey))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
