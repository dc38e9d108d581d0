//go:build testall

// OAuth 2 tokens of an issuer, which a connection gets in time.

package rabbit

import (
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/issuer"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// issued is a broker that takes an issuer's tokens. A channel looks at the token again ten times a
// second.
type issued struct {
	*broker
	issuer *issuer.Issuer
}

func issuedBroker(t *testing.T) *issued {
	t.Helper()
	t.Parallel()
	i, err := issuer.Start()
	if err != nil {
		t.Fatal(err)
	}
	real, err := rabbitserver.Start(await.Context(t), rabbitserver.Options{Management: true, Issuer: i})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := real.Close(); err != nil {
			t.Error(err)
		}
		_ = i.Close()
	})
	b := connect(t, real, real.URL())
	b.eval("application:set_env(rabbit, channel_tick_interval, 100).")
	return &issued{b, i}
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

// deliverUntil publishes one event after another until done, each until it is confirmed.
func (b *issued) deliverUntil(s *running, done func() bool) (ids []string) {
	for !done() && b.ctx.Err() == nil {
		ev := newEvent("events", "created")
		ids = append(ids, string(ev.ID))
		outcomes, _ := s.deliver(ev)
		if outcomes[0].State != sink.Confirmed {
			b.t.Errorf("%s %+v", outcomes[0].State, outcomes[0].Fault)
			return ids
		}
	}
	return ids
}

// A connection stands while its tokens end: each event is sent once, and in order.
func TestTokenIsRenewed(t *testing.T) {
	b := issuedBroker(t)
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
	ids := b.deliverUntil(s, func() bool { return len(b.issuer.Asked()) >= 4 })
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
func TestIssuerAway(t *testing.T) {
	b := issuedBroker(t)
	b.give(6 * time.Second)
	b.exchange("events", nil)
	s := start(t, b.tokenConfig())
	sent := map[string]bool{}
	note := func(ids []string) {
		for _, id := range ids {
			sent[id] = true
		}
	}
	note(b.deliverUntil(s, func() bool { return len(b.issuer.Asked()) >= 2 }))
	b.issuer.Answer(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "away", http.StatusServiceUnavailable) })
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		note(b.deliverUntil(s, stop.Load))
	}()
	await.Until(t, "the end of the token", func() bool {
		_, why := s.Up()
		return strings.Contains(why, "503 Service Unavailable") && strings.Contains(why, "check sink.rabbitmq.oauth.token_url") || t.Failed()
	})
	b.give(time.Hour)
	stop.Store(true)
	<-done
	for _, m := range b.take("events", b.depth("events")) {
		delete(sent, m.MessageId)
	}
	if len(sent) > 0 {
		t.Errorf("%d events are not in the queue", len(sent))
	}
}

// While an alarm of the broker stands (its disk is full) it reads no new token either, and the old
// one ends: nothing is rejected or lost when it is over.
func TestTokenEndsInAnAlarm(t *testing.T) {
	b := issuedBroker(t)
	const life = 6 * time.Second
	b.give(life)
	b.exchange("events", nil)
	s := start(t, b.tokenConfig())
	wantConfirmed(t, s.send(newEvent("events", "created")))
	asked := len(b.issuer.Asked())
	b.alarm(true)
	var stop atomic.Bool
	sent := make(chan []string, 1)
	go func() { sent <- b.deliverUntil(s, stop.Load) }()
	await.Until(t, "the alarm", func() bool {
		_, why := s.Up()
		return strings.Contains(why, "blocked by the broker")
	})
	await.Until(t, "a new token", func() bool { return len(b.issuer.Asked()) > asked })
	ends := time.Now().Add(life / 4)
	await.Until(t, "the end of the old one", func() bool { return time.Now().After(ends) })
	b.alarm(false)
	stop.Store(true)
	missing := map[string]bool{}
	for _, id := range <-sent {
		missing[id] = true
	}
	if len(missing) == 0 {
		t.Error("nothing was sent")
	}
	for _, m := range b.take("events", b.depth("events")) {
		delete(missing, m.MessageId)
	}
	if len(missing) > 0 {
		t.Errorf("%d events are not in the queue", len(missing))
	}
}

// Who is refused is told by whom, why, and what to do.
func TestTokenRefused(t *testing.T) {
	b := issuedBroker(t)
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
func TestTokenRefusedAtRenewal(t *testing.T) {
	b := issuedBroker(t)
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
	missing := map[string]bool{string(ofLane.ID): true, string(alone.ID): true}
	for _, m := range b.take("stuck", b.depth("stuck")) {
		delete(missing, m.MessageId)
	}
	if len(missing) > 0 {
		t.Errorf("%d events are not in the queue", len(missing))
	}
}
