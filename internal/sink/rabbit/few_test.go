package rabbit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// watched counts the connections that a sink of 16 lanes has lost, and keeps what it logs.
func watched(b *broker, cfg *Config) (lost *atomic.Int64, lines *observer.ObservedLogs) {
	lost = &atomic.Int64{}
	core, lines := observer.New(zap.InfoLevel)
	cfg.Lanes, cfg.Connections, cfg.Log = 16, 2, zap.New(core)
	cfg.Connected = func(again bool) {
		if again {
			lost.Add(1)
		}
	}
	return lost, lines
}

// everywhere publishes on every lane, over and over, while so many probes of what no queue is bound
// for are under way. Each event is confirmed once, and each probe is refused.
func (r *running) everywhere(b *broker, probes int) {
	r.t.Helper()
	var all sync.WaitGroup
	for lane := range r.lanes {
		all.Go(func() {
			for range 20 {
				outcomes := make([]sink.Outcome, 5)
				if err := r.Publish(b.ctx, lane, events(5, "created"), outcomes); err != nil {
					r.t.Errorf("lane %d: %v", lane, err)
				}
				for _, o := range outcomes {
					if o.State != sink.Confirmed {
						r.t.Errorf("lane %d: %s %v", lane, o.State, o.Fault)
					}
				}
			}
		})
	}
	for i := range probes {
		all.Go(func() {
			out, err := r.Probe(b.ctx, newEvent("k", fmt.Sprint("lost-", i)), false)
			if err != nil || out.State != sink.Rejected {
				r.t.Errorf("probe: %s, %v", out.State, err)
			}
		})
	}
	all.Wait()
	if n, want := b.depth("events"), len(r.lanes)*100; n != want {
		r.t.Errorf("%d messages for %d events", n, want)
	}
	b.take("events", len(r.lanes)*100)
}

// only is an exchange "events" that has a queue for what is created, and for nothing else.
func (b *broker) only() {
	b.t.Helper()
	b.bare("events", "topic")
	b.queue("events", nil)
	b.must(b.ch.QueueBind("events", "created", "events", false, nil))
}

// The user may have fewer channels than the relay uses, and the broker closes the connection of one
// more. That is found out once for each connection, and nothing is lost by it.
func TestUserWithFewChannels(t *testing.T) {
	for _, limit := range []int{2, 10, 40} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			b := newBroker(t)
			b.only()
			cfg := b.config()
			lost, lines := watched(b, &cfg)
			user := b.user("", ".*", "")
			cfg.URLs = []string{user}
			b.must(b.real.LimitUser(b.ctx, user, "max-channels", limit))
			await.Until(t, "check to meet the limit, which the broker counts late", func() bool {
				return slices.ContainsFunc(Check(b.ctx, cfg), func(f sink.Finding) bool {
					return f.Name == "channels" && f.Warn && strings.Contains(f.Fix, "max-channels of the user to 70 or more")
				})
			})
			s := start(t, cfg)
			await.Until(t, "each connection to have its share", func() bool {
				for lane, l := range s.lanes { // as any question, an event may meet the limit
					outcomes := make([]sink.Outcome, 1)
					if s.Publish(b.ctx, lane, events(1, "created"), outcomes) != nil || l.link.currentSession() == nil {
						return false
					}
				}
				for _, l := range s.links {
					// the broker counts late: a connection that has too much meets the limit by a
					// question
					switch sess := l.currentSession(); {
					case sess == nil:
						return false
					case sess.Allowed > limit/len(s.links):
						_ = sess.OnThrowawayChannel(b.ctx, func(*amqp.Channel) error { return nil })
						return false
					}
				}
				return lines.FilterMessage("broker allows few channels").Len() > 0
			})
			_, err := b.ch.QueuePurge("events", false)
			b.must(err)
			before := lost.Load()
			s.everywhere(b, 50)
			if n := lost.Load() - before; n > int64(len(s.links)) { // each may meet it once
				t.Errorf("%d connections were lost after the limit was known", n)
			}
		})
	}
}

// The broker may allow fewer connections than the relay has. It says so, and delivers again once
// there is room.
func TestOneConnection(t *testing.T) {
	b := newBroker(t)
	b.only()
	cfg := b.config()
	watched(b, &cfg)
	user := b.user("", ".*", "")
	cfg.URLs = []string{user}
	b.must(b.real.LimitUser(b.ctx, user, "max-connections", 1))
	await.Until(t, "check to meet the limit, which the broker counts late", func() bool {
		return slices.ContainsFunc(Check(b.ctx, cfg), func(f sink.Finding) bool {
			return f.Name == "connections" && !f.OK && !f.Warn && strings.Contains(f.Fix, "max-connections")
		})
	})
	s := start(t, cfg)
	await.Until(t, "the reason", func() bool {
		if second := s.links[1].currentSession(); second != nil { // the broker counts late
			second.Kill(errors.New("the test ends it"))
		}
		_, why := s.Up()
		return strings.Contains(why, "user connection limit (1) is reached") && strings.Contains(why, "max-connections")
	})
	b.must(b.real.LimitUser(b.ctx, user, "max-connections", 4))
	s.everywhere(b, 50)
}

// A user without any connection left is told apart from one without rights, and waited for.
func TestNoConnectionLeft(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	cfg := b.config()
	user := b.user("", ".*", "")
	cfg.URLs = []string{user}
	b.must(b.real.LimitUser(b.ctx, user, "max-connections", 0))
	found := Check(b.ctx, cfg)
	wantFinding(t, found, "broker", false, "user connection limit (0) is reached", "max-connections")
	s := start(t, cfg)
	await.Until(t, "the reason", func() bool {
		_, why := s.Up()
		return strings.Contains(why, "user connection limit (0) is reached") && strings.Contains(why, "max-connections")
	})
	b.must(b.real.LimitUser(b.ctx, user, "max-connections", 1))
	wantConfirmed(t, s.send(newEvent("k", "created")))
}

// What RabbitMQ says of its limits, 3.10 and 4.x.
func TestTextsOfLimits(t *testing.T) {
	for text, want := range map[string]struct{ channels, connections int }{
		"NOT_ALLOWED - number of channels opened for user 'u' has reached the maximum allowed user limit of (20)": {channels: 20},
		"NOT_ALLOWED - number of channels opened for user 'u' has reached the maximum allowed user limit of 20":   {channels: 20},
		"NOT_ALLOWED - number of channels opened on node 'n' has reached the maximum allowed limit of 20":         {channels: 20},
		"NOT_ALLOWED - connection refused for user 'u': user connection limit (2) is reached":                     {connections: 2},
		"NOT_ALLOWED - access to vhost 'v' refused for user 'u': connection limit (2) is reached":                 {connections: 2},
		"NOT_ALLOWED - connection refused: node connection limit (2) is reached":                                  {connections: 2},
		"NOT_ALLOWED - access to vhost 'v' refused for user 'u'":                                                  {},
		"NOT_ALLOWED - vhost v not found": {},
	} {
		ex := &amqp.Error{Code: amqp.NotAllowed, Reason: text, Server: true}
		connections, _ := connectionLimit(ex)
		if got := channelLimit(ex); got != want.channels || connections != want.connections {
			t.Errorf("%s: %d channels, %d connections", text, got, connections)
		}
	}
}
