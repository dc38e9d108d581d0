//go:build testall

// OAuth 2 tokens of an issuer, which a connection gets in time, or not.

package rabbit

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/issuer"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// issued is a broker that takes an issuer's tokens. A channel looks at the token again ten times a
// second.
type issued struct {
	*broker
	issuer *issuer.Issuer
}

// TestIssuer is on one broker. Tests put back what they change.
func TestIssuer(t *testing.T) {
	t.Parallel()
	certs, err := testcerts.NewCertificates()
	if err != nil {
		t.Fatal(err)
	}
	i, err := issuer.Start()
	if err != nil {
		t.Fatal(err)
	}
	real, err := rabbitserver.Start(await.Context(t), rabbitserver.Options{Management: true, Issuer: i, Certs: certs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := real.Close(); err != nil {
			t.Error(err)
		}
		_ = i.Close()
	})
	connect(t, real, real.URL()).eval("application:set_env(rabbit, channel_tick_interval, 100).")
	for name, test := range map[string]func(*issued){
		"token is renewed":         testTokenIsRenewed,
		"issuer is away":           testIssuerAway,
		"token ends in an alarm":   testTokenEndsInAnAlarm,
		"token is refused":         testTokenRefused,
		"token refused at renewal": testTokenRefusedAtRenewal,
		"token expires":            testTokenExpires,
		"unfit broker":             testUnfitBroker,
	} {
		t.Run(name, func(t *testing.T) { test(&issued{connect(t, real, real.URL()), i}) })
	}
}

func (b *issued) give(life time.Duration) {
	b.issuer.Give(issuer.Token{Audience: "rabbitmq", Scope: "rabbitmq.write:*/*/* rabbitmq.configure:*/*/*", Life: life})
}

func (b *issued) tokenConfig() Config {
	cfg := byKey(b.broker)
	s := defaultSettings()
	s.OAuth = sink.OAuth{TokenURL: b.issuer.TokenURL(), ClientID: setting.Plain(issuer.ClientID), ClientSecret: setting.Plain(issuer.Secret)}
	cfg.Logins = s.Logins()
	return cfg
}

// deliverUntil publishes one event after another to an exchange until done, each until it is
// confirmed, and no more than a busy machine has time for.
func (b *issued) deliverUntil(s *running, exchange string, done func() bool) (ids []string) {
	for pace := time.Tick(10 * time.Millisecond); !done() && !b.t.Failed(); <-pace {
		ev := newEvent(exchange, "created")
		ids = append(ids, string(ev.ID))
		outcomes, _ := s.deliver(ev)
		if outcomes[0].State != sink.Confirmed {
			b.t.Errorf("%s %+v", outcomes[0].State, outcomes[0].Fault)
		}
	}
	return ids
}

// delivering is deliverUntil meanwhile: stop ends it and returns what was delivered.
func (b *issued) delivering(s *running, exchange string) (stop func() []string) {
	var stopped atomic.Bool
	sent := make(chan []string, 1)
	go func() { sent <- b.deliverUntil(s, exchange, stopped.Load) }()
	return func() []string {
		stopped.Store(true)
		return <-sent
	}
}

// wantAll wants all of these events in a queue.
func (b *issued) wantAll(queue string, ids ...string) {
	b.t.Helper()
	missing := map[string]bool{}
	for _, id := range ids {
		missing[id] = true
	}
	for _, m := range b.take(queue, b.depth(queue)) {
		delete(missing, m.MessageId)
	}
	if len(ids) == 0 || len(missing) > 0 {
		b.t.Errorf("%d of %d events are not in the queue", len(missing), len(ids))
	}
}

// A connection stands while its tokens end: each event is sent once, and in order.
func testTokenIsRenewed(b *issued) {
	t := b.t
	b.give(10 * time.Second)
	b.exchange("events", nil)
	cfg := b.tokenConfig()
	var reconnects atomic.Int32
	cfg.Connected = func(again bool) {
		if again {
			reconnects.Add(1)
		}
	}
	s := start(t, cfg)
	asked := len(b.issuer.Asked())
	ids := b.deliverUntil(s, "events", func() bool { return len(b.issuer.Asked()) >= asked+4 })
	got := b.take("events", b.depth("events"))
	if len(got) != len(ids) || reconnects.Load() > 0 {
		t.Fatalf("%d messages for %d events, %d reconnects", len(got), len(ids), reconnects.Load())
	}
	for i, m := range got {
		if m.MessageId != ids[i] {
			t.Fatalf("message %d is %s, want %s", i, m.MessageId, ids[i])
		}
	}
}

// The issuer fails until the token has ended: nothing is rejected or lost, and the state says why.
func testIssuerAway(b *issued) {
	b.give(6 * time.Second)
	b.exchange("events", nil)
	s := start(b.t, b.tokenConfig())
	asked := len(b.issuer.Asked())
	sent := b.deliverUntil(s, "events", func() bool { return len(b.issuer.Asked()) >= asked+2 })
	b.issuer.Answer(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "away", http.StatusServiceUnavailable) })
	stop := b.delivering(s, "events")
	await.Until(b.t, "the end of the token", func() bool {
		_, why := s.Up()
		return strings.Contains(why, "503 Service Unavailable") && strings.Contains(why, "check sink.rabbitmq.oauth.token_url") || b.t.Failed()
	})
	b.give(time.Hour)
	b.wantAll("events", append(sent, stop()...)...)
}

// While an alarm of the broker stands (its disk is full) it reads no new token either, and the old
// one ends: nothing is rejected or lost when it is over.
func testTokenEndsInAnAlarm(b *issued) {
	t := b.t
	const life = 6 * time.Second
	b.give(life)
	b.exchange("events", nil)
	s := start(t, b.tokenConfig())
	wantConfirmed(t, s.send(newEvent("events", "created")))
	asked := len(b.issuer.Asked())
	b.alarm(true)
	stop := b.delivering(s, "events")
	await.Until(t, "the alarm", func() bool {
		_, why := s.Up()
		return strings.Contains(why, "blocked by the broker")
	})
	await.Until(t, "a new token", func() bool { return len(b.issuer.Asked()) > asked })
	ends := time.Now().Add(life / 4)
	await.Until(t, "the end of the old one", func() bool { return time.Now().After(ends) })
	b.alarm(false)
	b.wantAll("events", stop()...)
}

// Who is refused is told by whom, why, and what to do.
func testTokenRefused(b *issued) {
	t := b.t
	for name, c := range map[string]struct {
		gives     issuer.Token
		said, fix string
	}{
		"audience": {issuer.Token{Audience: "other", Scope: "rabbitmq.write:*/*/*", Life: time.Hour}, `for audience "other"`, "audience"},
		"expired":  {issuer.Token{Audience: "rabbitmq", Life: -time.Minute}, "and has expired", "clocks"},
		// RabbitMQ 3.10 refuses such a login, 4 the virtual host
		"no rights": {issuer.Token{Audience: "rabbitmq", Life: time.Hour}, "with scope none|access to vhost '/' refused", "scopes|permissions"},
	} {
		b.issuer.Give(c.gives)
		cfg := b.tokenConfig()
		found := Check(t.Context(), cfg)
		if len(found) == 0 || found[0].OK || !regexp.MustCompile(c.said).MatchString(found[0].Detail) || !regexp.MustCompile(c.fix).MatchString(found[0].Fix) {
			t.Errorf("%s: found %+v", name, found)
		}
	}
	b.give(time.Hour)
	b.exchange("events", nil)
	if found := Check(t.Context(), b.tokenConfig()); !found[0].OK {
		t.Errorf("found %+v", found)
	}
}

// The broker ends each connection that offers it a token of another audience. No event in flight is
// accused of that, neither one of a lane nor one that is alone on a private connection; both are
// delivered once the issuer is right again.
func testTokenRefusedAtRenewal(b *issued) {
	t := b.t
	b.give(20 * time.Second)
	b.exchange("events", nil)
	b.exchange("stuck", nil)
	b.suspend("stuck")
	cfg := b.tokenConfig()
	cfg.ConfirmTimeout = time.Minute
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("events", "created")))
	b.issuer.Give(issuer.Token{Audience: "other", Scope: "rabbitmq.write:*/*/*", Life: time.Hour})

	ofLane, alone := newEvent("stuck", "created"), newEvent("stuck", "created")
	sent, probed := make(chan []sink.Outcome, 1), make(chan sink.Outcome, 1)
	go func() {
		outcomes, err := s.try(ofLane)
		if err == nil {
			t.Error("the lane's call has not ended with an error")
		}
		sent <- outcomes
	}()
	go func() {
		out, err := s.Probe(b.ctx, alone, true)
		if err == nil {
			t.Error("the probe has not ended with an error")
		}
		probed <- out
	}()
	await.Until(t, "both to be in flight", func() bool { return s.Status().PendingConfirms == 2 })
	for _, o := range []sink.Outcome{(<-sent)[0], <-probed} {
		if o.State != sink.Unknown {
			t.Errorf("%s %+v, want it in doubt", o.State, o.Fault)
		}
	}
	await.Until(t, "the state to describe the token", func() bool {
		_, why := s.Up()
		return strings.Contains(why, `for audience "other"`)
	})

	b.resume("stuck")
	b.give(time.Hour)
	outcomes, _ := s.deliver(ofLane)
	wantConfirmed(t, append(outcomes, s.probe(alone, true)))
	b.wantAll("stuck", string(ofLane.ID), string(alone.ID))
}

// Of a real broker that lacks what an address asks for, check says what it has and what to change.
func testUnfitBroker(b *issued) {
	b.exchange("events", nil)
	u, err := url.Parse(b.url)
	b.must(err)
	at := func(scheme, host, query string) string {
		other := *u
		other.Scheme, other.Host, other.RawQuery = scheme, host, query
		return other.String()
	}
	finds := func(address, detail, fix string) {
		b.t.Helper()
		cfg := b.config()
		cfg.URLs, cfg.TLS = []string{address}, sink.TLS{}.Load("")
		wantFinding(b.t, Check(b.ctx, cfg), "broker", false, detail, fix)
	}
	finds(at("amqps", u.Host, ""), "the port does not speak TLS", "sink.rabbitmq.url")
	finds(at("amqp", b.real.TLSAddr(), ""), "the port expects TLS", "write amqps://")
	finds(at("amqp", u.Host, "auth_mechanism=external"), "mechanism EXTERNAL is not enabled, the broker has ", "write amqps://")
	mechanisms := strings.TrimSpace(b.eval("{ok, M} = application:get_env(rabbit, auth_mechanisms), M."))
	b.eval("application:set_env(rabbit, auth_mechanisms, ['AMQPLAIN']).")
	defer b.eval("application:set_env(rabbit, auth_mechanisms, %s).", mechanisms)
	finds(at("amqp", u.Host, ""), "mechanism PLAIN is not enabled, the broker has AMQPLAIN", "auth_mechanisms")
}

// Once a token has expired whose end the relay does not know, its connection is refused every
// exchange. Nothing is rejected for that, whether a new token is there already or comes later.
func testTokenExpires(b *issued) {
	t := b.t
	// so long a name that the broker cuts off what it says about the token
	exchange := strings.Repeat("events.", 14)
	b.exchange(exchange, nil)
	var renews atomic.Bool
	var token atomic.Value
	renews.Store(true)
	cfg := byKey(b.broker)
	// an agent that renews, or is late
	cfg.Logins = &sink.Logins{Read: func(context.Context) (sink.Login, error) {
		if renews.Load() {
			text, err := b.issuer.Sign(issuer.Token{Audience: "rabbitmq", Scope: "rabbitmq.write:*/*/*", Life: 3 * time.Second})
			if err != nil {
				return sink.Login{}, err
			}
			token.Store(text)
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
	sent := b.deliverUntil(s, exchange, func() bool { return reconnects.Load() > 0 })

	renews.Store(false)
	stop := b.delivering(s, exchange)
	await.Until(t, "the login to be refused", func() bool {
		_, why := s.Up()
		return strings.Contains(why, "not allowed") || t.Failed()
	})
	renews.Store(true)
	b.wantAll(exchange, append(sent, stop()...)...)
}
