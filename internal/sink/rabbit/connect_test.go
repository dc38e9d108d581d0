package rabbit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// A dead address of a cluster is skipped, whichever is tried first.
func TestSeveralAddresses(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	cfg := b.config()
	cfg.URLs = []string{fmt.Sprintf("amqp://127.0.0.1:%d/", processes.FreePort(t)), b.url, fmt.Sprintf("amqp://127.0.0.1:%d/", processes.FreePort(t))}
	for range 5 {
		s := start(t, cfg)
		wantConfirmed(t, s.send(newEvent("k", "created")))
		s.end()
	}
	found := Check(b.ctx, cfg)
	wantFinding(t, found, "broker", false, "connection refused", "check sink.rabbitmq.url")
	wantFinding(t, found, "broker", true, "RabbitMQ", "")
	wantFinding(t, found, `exchange "events"`, true, "may publish", "")
	for _, f := range found {
		if !f.OK && !f.Warn {
			t.Errorf("a dead address next to a good one is more than a warning: %+v", f)
		}
	}
	if n := b.depth("events"); n != 5 {
		t.Errorf("%d messages, want 5: check has published", n)
	}
}

// A relay is back soon after its broker, however long that was away: no pause is longer than 2 s.
func TestPausesStayShort(t *testing.T) {
	var pause time.Duration
	for range 1000 {
		if pause = nextBackoff(pause); pause < backoffMin || pause > 2*time.Second {
			t.Fatalf("a pause of %s", pause)
		}
	}
}

func TestLoginIsAskedAgain(t *testing.T) {
	b := parallelBroker(t)
	b.exchange("events", nil)
	cfg := b.config()
	u, err := url.Parse(b.url)
	b.must(err)
	right, _ := u.User.Password()
	var password atomic.Value
	password.Store("wrong")
	cfg.Logins = &sink.Logins{Read: func(context.Context) (sink.Login, error) {
		return sink.Login{User: u.User.Username(), Password: password.Load().(string)}, nil
	}}
	logs, lines := observer.New(zap.InfoLevel)
	cfg.Log = zap.New(logs)
	s := start(t, cfg)
	await.Until(t, "a refusal", func() bool {
		_, why := s.Up()
		return strings.Contains(why, "password not allowed") && strings.Contains(why, "username and password")
	})
	password.Store(right)
	wantConfirmed(t, s.send(newEvent("k", "created")))
	await.Until(t, "log lines", func() bool { return lines.FilterMessage("broker connected").Len() == 1 })
	if n := lines.FilterMessage("broker unavailable").Len(); n != 1 {
		t.Errorf("%d lines for one reason: %+v", n, lines.All())
	}
	for _, l := range lines.All() {
		if strings.Contains(fmt.Sprint(l.Message, l.ContextMap()), "wrong") {
			t.Errorf("a line shows the password: %v", l)
		}
	}
}

func TestLoginRefusedForGood(t *testing.T) {
	b := parallelBroker(t)
	cfg := b.config()
	cfg.LoginTimeout = 300 * time.Millisecond
	cfg.Logins = sink.SecretLogins("", setting.Plain("guest"), setting.Plain("wrong"))
	s := start(t, cfg)
	err := <-s.done
	s.done <- err
	var stop *event.Stop
	if !errors.As(err, &stop) || stop.Code != event.ExitFailure || !strings.Contains(err.Error(), "password not allowed") {
		t.Errorf("got %v", err)
	}
}

// A port that can never be the right one is exit 2.
func TestUnfitForGood(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, 8))
			_, _ = c.Write([]byte{21, 3, 1, 0, 2, 2, 70}) // a TLS alert
			c.Close()
		}
	}()
	cfg := Config{Dialer: conn.Dialer{URLs: []string{"amqp://" + l.Addr().String() + "/"}}, Lanes: 1, LoginTimeout: 300 * time.Millisecond, Log: zap.NewNop()}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var stop *event.Stop
	if err := s.Run(t.Context()); !errors.As(err, &stop) || stop.Code != event.ExitUsage || !strings.Contains(err.Error(), "expects TLS") || !strings.Contains(stop.Fix, "amqps://") {
		t.Errorf("got %v", err)
	}
	wantFinding(t, Check(t.Context(), cfg), "broker", false, "expects TLS", "write amqps://")
}

// A cluster may be changed broker by broker for a minute. Then the configuration is at fault.
func TestUnfitForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Sink{cfg: Config{LoginTimeout: time.Minute}}
		unfit, refused := fmt.Errorf("%w: no TLS", conn.ErrUnfit), &amqp.Error{Code: amqp.AccessRefused}
		for range 2 {
			for range 60 {
				if err := s.loginRefused(unfit); err != nil {
					t.Fatalf("got %v", err)
				}
				time.Sleep(time.Second) //nolint:forbidigo // the bubble's time, not ours
			}
			if err := s.loginRefused(errors.New("away")); err != nil {
				t.Fatalf("away: %v", err)
			}
		}
		// Refusals of the login count, whatever is unfit in between.
		for range 60 {
			if err := errors.Join(s.loginRefused(refused), s.loginRefused(unfit)); err != nil {
				t.Fatalf("got %v", err)
			}
			time.Sleep(time.Second) //nolint:forbidigo // the bubble's time, not ours
		}
		var stop *event.Stop
		if err := s.loginRefused(refused); !errors.As(err, &stop) || stop.Code != event.ExitFailure {
			t.Errorf("refused for a minute: %v", err)
		}
		for range 60 {
			if err := s.loginRefused(unfit); err != nil {
				t.Fatalf("got %v", err)
			}
			time.Sleep(time.Second) //nolint:forbidigo // the bubble's time, not ours
		}
		if err := s.loginRefused(unfit); !errors.As(err, &stop) || stop.Code != event.ExitUsage {
			t.Errorf("unfit for a minute: %v", err)
		}
	})
}

func TestDeclare(t *testing.T) {
	b := newBroker(t)
	b.exchanges = []string{"events"}
	cfg := b.config()
	wantFinding(t, Check(b.ctx, cfg), `exchange "events"`, false, "no exchange 'events'", "declare")
	cfg.Declare = true
	wantFinding(t, Check(b.ctx, cfg), `exchange "events"`, true, "will be declared", "")
	s := start(t, cfg)
	wantRejected(t, s.send(newEvent("k", "created"))[0], sink.Destination, sink.Unroutable)
	b.must(b.channel().ExchangeDeclarePassive("events", "topic", true, false, false, false, nil))

	// Deleted while the relay runs, it is never declared again: neither when it is missed, nor on a
	// new connection. Its pause waits for an operator.
	b.must(b.ch.ExchangeDelete("events", false, false))
	missing := func() {
		t.Helper()
		for _, o := range []sink.Outcome{s.send(newEvent("k", "created"))[0], s.probe(newEvent("k", "created"), false)} {
			wantRejected(t, o, sink.Destination, sink.NoExchange)
			if !strings.Contains(o.Fault.Held, "bind all queues, then cdc-relay deferred retry") {
				t.Errorf("held: %q", o.Fault.Held)
			}
		}
	}
	missing()
	// A check beside it asks the broker, and not what the relay remembers.
	for _, f := range Check(b.ctx, cfg) {
		if f.Name == `exchange "events"` && (f.Running == nil || f.Running.OK || f.Running.Warn) {
			t.Errorf("beside a relay that runs: %+v", f.Running)
		} else if f.Running != nil {
			wantFinding(t, []sink.Finding{*f.Running}, `exchange "events"`, false, "no exchange 'events'", "bind all queues, then cdc-relay deferred retry")
		}
	}
	first := s.firstSession()
	first.Kill(errors.New("cut"))
	<-first.Gone
	missing()
}

// The exchange is of the type that the configuration names; one that the broker does not know costs
// a connection, and only once.
func TestDeclareOfAType(t *testing.T) {
	b := parallelBroker(t)
	b.exchanges = []string{"events"}
	cfg := b.config()
	cfg.Declare, cfg.ExchangeType = true, "no-such-type"
	wantRejected(t, start(t, cfg).send(newEvent("k", "created"))[0], sink.Destination, sink.NoExchange)
	cfg.ExchangeType = "fanout"
	wantRejected(t, start(t, cfg).send(newEvent("k", "created"))[0], sink.Destination, sink.Unroutable)
	wantFinding(t, Check(b.ctx, cfg), `exchange "events"`, true, "may publish", "")
	cfg.ExchangeType = "direct"
	wantFinding(t, Check(b.ctx, cfg), `exchange "events"`, false, "is of type fanout, and sink.rabbitmq.exchange_type is direct", "exchange_type to fanout")
}

// Every exchange and queue that the configuration names is asked for.
func TestCheckNamed(t *testing.T) {
	b := newBroker(t)
	b.exchange("orders", nil)
	cfg := b.config()
	cfg.Exchange, cfg.Allow = tpl(t, "{aggregate}"), Allow{Exchange: sink.Allow{"orders", "gone", "x.*"}}
	cfg.Mirror = &event.Route{Name: []byte("dead"), RoutingKey: []byte("k")}
	found := Check(b.ctx, cfg)
	wantFinding(t, found, `exchange "orders"`, true, "may publish", "")
	wantFinding(t, found, `exchange "gone"`, false, "no exchange 'gone'", "declare it")
	wantFinding(t, found, `mirror exchange "dead"`, false, "no exchange 'dead'", "declare it")

	cfg = b.config()
	cfg.Exchange, cfg.RoutingKey = tpl(t, ""), tpl(t, "missing")
	cfg.Mirror = &event.Route{RoutingKey: []byte("orders")}
	found = Check(b.ctx, cfg)
	wantFinding(t, found, `queue "missing"`, false, "no queue 'missing'", "declare queue")
	wantFinding(t, found, `mirror queue "orders"`, true, "exists", "")
}

func TestCheckRights(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	cfg := b.config()
	cfg.URLs = []string{b.user("", "^$", "")}
	wantFinding(t, Check(b.ctx, cfg), `exchange "events"`, false, "ACCESS_REFUSED", "set_permissions")
	cfg.Exchange = tpl(t, "{key}")
	wantFinding(t, Check(b.ctx, cfg), "exchange", true, "not checked", "")
	u, err := url.Parse(b.url)
	b.must(err)
	u.Path = "/nowhere"
	cfg.URLs = []string{u.String()}
	wantFinding(t, Check(b.ctx, cfg), "broker", false, "nowhere", "virtual host")
}

// A broker that accepts the login and does not answer then: check says to read its log.
func TestCheckWithoutAnAnswer(t *testing.T) {
	b := newBroker(t)
	s, err := New(b.config())
	b.must(err)
	sess, err := s.cfg.DialOne(b.ctx, b.url, nil)
	b.must(err)
	sess.Close(conn.CloseTimeout)
	wantFinding(t, []sink.Finding{s.checkExchange(b.ctx, sess)}, `exchange "events"`, false, "no answer", "log of the broker at "+sess.Address)
}

// A probe is examined and never routed, on any exchange type and for any user.
func TestProbePublishesNothing(t *testing.T) {
	b := newBroker(t)
	b.bare("fan", "fanout")
	b.queue("fan", nil)
	b.must(b.ch.QueueBind("fan", "", "fan", false, nil))
	imp := b.user(".*", ".*", ".*", "impersonator", "administrator")
	for _, addr := range []string{b.url, imp} {
		cfg := b.config()
		cfg.URLs, cfg.Exchange = []string{addr}, tpl(t, "fan")
		wantFinding(t, Check(b.ctx, cfg), `exchange "fan"`, true, "may publish", "")
	}
	if n := b.depth("fan"); n != 0 {
		t.Errorf("%d messages from probes", n)
	}
	// A message after the probes shows that they would have been seen.
	b.must(b.ch.Publish("fan", "", false, false, amqp.Publishing{}))
	b.take("fan", 1)
}

// A node that stops says so (320); it accuses nobody, and what was in flight is in doubt.
func TestConnectionForced(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	proxy := startProxy(t, b.real.Addr())
	cfg := b.config()
	user := b.user(".*", ".*", ".*")
	cfg.URLs = []string{through(t, proxy, user)}
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("k", "created")))
	proxy.Hold(netproxy.Down)
	done := make(chan struct{})
	var outcomes []sink.Outcome
	var err error
	go func() { defer close(done); outcomes, err = s.try(events(10, "created")...) }()
	await.Until(t, "stored", func() bool { return b.depth("events") == 11 })
	b.must(b.real.DeleteUser(b.ctx, user)) // the broker closes its connections
	proxy.Cut()
	<-done
	if err == nil {
		t.Fatal("no error")
	}
	for i, o := range outcomes {
		if o.State != sink.Unknown {
			t.Errorf("event %d: %s", i, o.State)
		}
	}
	b.must(b.real.PutUser(b.ctx, user))
	b.must(b.real.Permit(b.ctx, user, ".*", ".*", ".*"))
	b.must(proxy.Restore())
	proxy.Release(netproxy.Down)
	wantConfirmed(t, s.send(newEvent("k", "created")))
}

// A broker that does not answer the handshake is left after its timeout's context; here the
// caller's ends first.
func TestRunEndsInsideAHandshake(t *testing.T) {
	b := newBroker(t)
	proxy := startProxy(t, b.real.Addr())
	proxy.Hold(netproxy.Down)
	cfg := b.config()
	cfg.URLs = []string{b.through(proxy)}
	s := start(t, cfg)
	b.must(proxy.WaitHeld(b.ctx, netproxy.Down, 1))
	began := time.Now()
	s.end()
	if took := time.Since(began); took >= conn.HandshakeTimeout {
		t.Errorf("Run has waited for the end of the handshake: %s", took)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if err := s.Publish(ctx, 0, events(1, "created"), make([]sink.Outcome, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("Publish: %v", err)
	}
}

// A virtual host that is deleted takes the connection with it, and accuses nobody: it is waited
// for, as the broker is.
func TestVirtualHostDeleted(t *testing.T) {
	real := servers.SharedRabbitMQ(t)
	b := connect(t, real, real.VHost(t))
	b.exchange("events", nil)
	s := start(t, b.config())
	wantConfirmed(t, s.send(newEvent("k", "created")))
	u, err := amqp.ParseURI(b.url)
	b.must(err)
	b.must(real.DeleteVHost(b.ctx, u.Vhost))
	done := make(chan struct{})
	go func() { // the exchange may go before the connection does, and come after it
		defer close(done)
		for {
			if outcomes, err := s.try(newEvent("k", "created")); err == nil && outcomes[0].State == sink.Confirmed {
				return
			}
		}
	}()
	await.Until(t, "the login is refused", func() bool { up, why := s.Up(); return !up && strings.Contains(why, "virtual host") })
	select {
	case <-done:
		t.Fatal("confirmed without a virtual host")
	default:
	}
	b.must(real.AddVHost(b.ctx, u.Vhost))
	again := connect(t, real, b.url)
	again.exchange("events", nil)
	<-done
}

// slowBroker is a confirm timeout that a broker on a loaded machine keeps: it has half of it to
// answer a question.
const slowBroker = 4 * time.Second

// When nothing on the connection is confirmed nobody is accused: the connection is given up, and
// the event in doubt.
func TestNothingConfirmed(t *testing.T) {
	b := parallelBroker(t)
	b.exchange("events", nil)
	proxy := startProxy(t, b.real.Addr())
	cfg := b.config()
	cfg.URLs, cfg.ConfirmTimeout = []string{b.through(proxy)}, slowBroker
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("k", "created")))
	proxy.Hold(netproxy.Down)
	outcomes, err := s.try(events(5, "created")...)
	if err == nil {
		t.Fatal("no error")
	}
	for _, o := range outcomes {
		if o.State != sink.Unknown {
			t.Errorf("%s %v", o.State, o.Fault)
		}
	}
	proxy.Release(netproxy.Down)
	wantConfirmed(t, s.send(newEvent("k", "created")))
}
