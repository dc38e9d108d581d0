package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// inMemory runs a test with a sink on a cluster in memory, in time that passes only when all wait.
// The topic is "events", unless cfg says otherwise.
func inMemory(t *testing.T, nodes, partitions int, cfg Config, test func(m *memory, r *running)) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, nodes, rand.New(rand.NewPCG(1, 2)))
		m.change(func() { m.create("events", partitions) })
		cfg.Brokers = []string{"1:9092"}
		if cfg.Topic.String() == "" {
			cfg.Topic = parseTemplate(t, "events")
		}
		s, err := New(cfg)
		must(t, err)
		s.client.Dial = m.dial
		ctx, stop := context.WithCancel(t.Context())
		r := &running{Sink: s, t: t, stop: stop, done: make(chan error, 1)}
		go func() { r.done <- s.Run(ctx) }()
		test(m, r)
		stop()
		if err := <-r.done; err != nil {
			t.Error(err)
		}
	})
}

// goBy lets so much of a bubble's time pass, which takes none of ours.
func goBy(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // see above

// One line is logged for each change of Up, and the reason names what is away.
func TestUp(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	var mu sync.Mutex
	var connected []bool
	cfg := Config{Log: zap.New(core), Connected: func(again bool) {
		mu.Lock()
		defer mu.Unlock()
		connected = append(connected, again)
	}}
	inMemory(t, 1, 1, cfg, func(m *memory, r *running) {
		if up, why := r.Up(); up || why != kafkaclient.NotConnected {
			t.Errorf("up %v, %s", up, why)
		}
		synctest.Wait()
		if up, why := r.Up(); up { // the first answer takes a millisecond
			t.Errorf("up %v, %s", up, why)
		}
		wantConfirmed(t, r.send(few(10)...))
		if up, why := r.Up(); !up || why != "" {
			t.Errorf("up %v, %s", up, why)
		}
		if n := r.Status().Connections; n != 2 {
			t.Errorf("%d connections", n)
		}
		m.turn(1, true, false, time.Hour)
		published := make(chan struct{})
		go func() {
			defer close(published)
			wantConfirmed(t, r.send(few(10)...))
		}()
		goBy(10 * time.Second)
		if up, why := r.Up(); up || why != "connect to broker 1:9092: connection refused" {
			t.Errorf("up %v, %s", up, why)
		}
		if n := r.Status().Connections; n != 0 {
			t.Errorf("%d connections", n)
		}
		m.turn(1, false, false, 0)
		<-published
		goBy(time.Minute)
		if up, why := r.Up(); !up || why != "" {
			t.Errorf("up %v, %s", up, why)
		}
	})
	var lines []string
	for _, e := range logs.All() {
		lines = append(lines, e.Message)
	}
	if _, ok := logs.All()[len(lines)-1].ContextMap()["away"]; !ok {
		t.Errorf("the last line does not say for how long it was away: %v", logs.All()[len(lines)-1].ContextMap())
	}
	if want := []string{"brokers connected", "broker unavailable", "brokers connected"}; !slices.Equal(lines, want) {
		t.Errorf("logged %q, want %q", lines, want)
	}
	if !slices.Contains(connected, true) || connected[0] {
		t.Errorf("connected again: %v", connected)
	}
}

// A broker over whose silence a request was given up is down until it answers: on a new connection,
// and not only until one is tried, or on the other one that is there.
func TestSilentStaysDown(t *testing.T) {
	for name, patience := range map[string]time.Duration{"connected to again": time.Hour, "answers on the other connection": kafkaclient.SilentAfter + time.Second} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, 2, 1, Config{ConfirmTimeout: 2 * time.Second}, func(m *memory, r *running) {
				// so that each of the two workers makes a connection
				m.change(func() { m.throttle = 1000 })
				wantConfirmed(t, r.send(few(1)...))
				wantConfirmed(t, r.send(few(1)...))
				m.change(func() { m.throttle = 0 })
				goBy(time.Second)
				leader, _ := r.client.Metadata.Load().Leader("events", 0)
				m.turn(leader.Node, false, true, time.Hour)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				ev, ended := few(1)[0], make(chan struct{})
				go func() {
					defer close(ended)
					if _, err := r.try(ctx, ev); (err != nil) != (ctx.Err() != nil) {
						t.Errorf("publish: %v", err)
					}
				}()
				goBy(kafkaclient.SilentAfter + 2*time.Second)
				for range 20 {
					if up, why := r.Up(); up || why == "" {
						t.Errorf("silent: up %v, %s", up, why)
					}
					goBy(time.Second)
				}
				m.turn(leader.Node, false, false, 0)
				<-ended
				wantConfirmed(t, r.send(ev))
				if up, why := r.Up(); !up {
					t.Errorf("fixed: up %v, %s", up, why)
				}
			})
		})
	}
}

// Nobody publishes when the broker goes away: it is missed all the same, and found again.
func TestIdle(t *testing.T) {
	inMemory(t, 1, 1, Config{}, func(m *memory, r *running) {
		wantConfirmed(t, r.send(few(1)...))
		for range 3 {
			goBy(10 * time.Second) // the next refresh is far
			m.turn(1, true, false, time.Hour)
			synctest.Wait()
			if up, why := r.Up(); up || why == "" {
				t.Errorf("down: up %v, %s", up, why)
			}
			goBy(time.Second)
			m.turn(1, false, false, 0)
			goBy(2 * time.Second)
			if up, why := r.Up(); !up {
				t.Errorf("fixed: up %v, %s", up, why)
			}
		}
	})
}

// A broker that ends each connection as soon as it is idle is not asked without a pause.
func TestHastyBroker(t *testing.T) {
	var dials atomic.Int64
	cfg := Config{Connected: func(bool) { dials.Add(1) }}
	inMemory(t, 1, 1, cfg, func(m *memory, r *running) {
		wantConfirmed(t, r.send(few(1)...))
		m.change(func() { m.nodes[1].hasty = true })
		m.turn(1, false, false, 0) // for who waits
		before := dials.Load()
		goBy(time.Minute)
		if n := dials.Load() - before; n < 25 || n > 31 {
			t.Errorf("%d connections in a minute, want one in two seconds", n)
		}
	})
}

// A login that is refused from the start ends Run, and so do brokers that all lack something. What
// comes later does not.
func TestLoginRefused(t *testing.T) {
	unfit := &kafkaclient.UnfitError{Kind: kafkaclient.ErrNoTLS, Text: "no TLS"}
	for _, c := range []struct {
		err  error
		code int
		why  string
		in   time.Duration
	}{
		{kafkaclient.ErrLogin, event.ExitFailure, "broker_login", kafkaclient.LoginTimeout},
		{unfit, event.ExitUsage, "broker_unfit", kafkaclient.LoginTimeout},
	} {
		refuse := func(context.Context, string) (kafkaclient.Connection, error) {
			return nil, fmt.Errorf("log in: %w", c.err)
		}
		synctest.Test(t, func(t *testing.T) {
			s, err := New(Config{Brokers: []string{"1:9092", "2:9092"}, RecordConfig: toTopic(t, "events")})
			must(t, err)
			s.client.Dial = refuse
			began := time.Now()
			var stop *event.Stop
			if err := s.Run(t.Context()); !errors.As(err, &stop) || stop.Code != c.code || stop.Reason != c.why || stop.Fix == "" {
				t.Errorf("Run: %v", err)
			}
			if took := time.Since(began); took < c.in || took > c.in+2*time.Second {
				t.Errorf("after %s", took)
			}
		})
		testRefusedLater(t, refuse)
	}
	// A minute of refusals is one, whether the other broker is unfit, too, or away.
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Brokers: []string{"1:9092", "2:9092"}, RecordConfig: toTopic(t, "events")})
		must(t, err)
		s.client.Dial = func(_ context.Context, addr string) (kafkaclient.Connection, error) {
			if addr == "2:9092" && time.Now().Second()%20 < 10 {
				return nil, errors.New("away")
			}
			return nil, fmt.Errorf("%w: %w", kafkaclient.ErrLogin, unfit)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var stop *event.Stop
		if err := s.Run(ctx); !errors.As(err, &stop) || stop.Reason != "broker_login" {
			t.Errorf("Run: %v", err)
		}
	})
	// One broker that is only away may have it.
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Brokers: []string{"1:9092", "2:9092"}, RecordConfig: toTopic(t, "events")})
		must(t, err)
		s.client.Dial = func(_ context.Context, addr string) (kafkaclient.Connection, error) {
			if addr == "2:9092" {
				return nil, errors.New("away")
			}
			return nil, unfit
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func testRefusedLater(t *testing.T, refuse func(context.Context, string) (kafkaclient.Connection, error)) {
	t.Helper()
	inMemory(t, 1, 1, Config{}, func(m *memory, r *running) {
		wantConfirmed(t, r.send(few(1)...))
		synctest.Wait()
		var refused sync.Mutex
		now := true
		// Nothing dials while all wait, so the field may change.
		r.Sink.client.Dial = func(ctx context.Context, addr string) (kafkaclient.Connection, error) {
			refused.Lock()
			defer refused.Unlock()
			if now {
				return refuse(ctx, addr)
			}
			return m.dial(ctx, addr)
		}
		m.turn(1, true, false, time.Hour)
		m.turn(1, false, false, time.Hour)
		published := make(chan struct{})
		go func() {
			defer close(published)
			wantConfirmed(t, r.send(few(1)...))
		}()
		goBy(time.Hour)
		select {
		case err := <-r.done:
			t.Fatalf("Run: %v", err)
		default:
		}
		refused.Lock()
		now = false
		refused.Unlock()
		<-published
	})
}

// The leader is killed: its partition is confirmed by the next one as soon as that leads, a little
// of the election later.
func TestStall(t *testing.T) {
	for _, election := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second} {
		for name, frozen := range map[string]bool{"killed": false, "frozen": true} {
			t.Run(fmt.Sprint(name, " ", election), func(t *testing.T) {
				inMemory(t, 3, 1, Config{}, func(m *memory, r *running) {
					wantConfirmed(t, r.send(few(1)...))
					goBy(time.Second)
					l, _ := r.client.Metadata.Load().Leader("events", 0)
					began := time.Now()
					m.turn(l.Node, !frozen, frozen, election)
					wantConfirmed(t, r.send(few(1)...))
					stall := time.Since(began)
					t.Logf("election %s, stall %s", election, stall)
					limit := max(election*3/2, election+50*time.Millisecond)
					if frozen {
						// the control connection may be to that node
						limit += kafkaclient.ControlFirst
					}
					if stall > limit {
						t.Errorf("a stall of %s for an election of %s", stall, election)
					}
					m.turn(l.Node, false, false, 0)
				})
			})
		}
	}
}

// Config.Confirms counts events by what the broker said of them.
func TestConfirms(t *testing.T) {
	var mu sync.Mutex
	var acks, nacks, timeouts int
	cfg := Config{Confirms: func(a, n, r, to int) {
		mu.Lock()
		defer mu.Unlock()
		acks, nacks, timeouts = acks+a, nacks+n, timeouts+to
		if r != 0 {
			t.Error("returned")
		}
	}}
	inMemory(t, 1, 1, cfg, func(m *memory, r *running) {
		wantConfirmed(t, r.send(few(10)...))
		m.change(func() { m.topics["events"].denied = true })
		r.send(few(5)...)
		m.change(func() { m.topics["events"].denied = false })
		m.odds.answerLost = 1000
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := r.try(ctx, few(3)...); err == nil {
			t.Error("no answer, and no error")
		}
	})
	if acks != 10 || nacks != 5 || timeouts < 3 {
		t.Errorf("%d acks, %d nacks, %d timeouts", acks, nacks, timeouts)
	}
}

// The path of a call, without the request, allocates nothing.
func TestPublishAllocates(t *testing.T) {
	s, err := New(Config{Brokers: []string{"1:9092"}, RecordConfig: toTopic(t, "events")})
	must(t, err)
	d := &partRig{t: t, lane: s.lanes[laneOfMany], id: 100}
	d.know(kafkaclient.Leader{Node: 1, Epoch: 5})
	call := few(100)
	outcomes := make([]sink.Outcome, len(call))
	round := func() {
		l := d.lane
		l.beginCall(call, outcomes)
		if !l.isMetadataKnown() {
			t.Fatal("not answered")
		}
		l.splitIntoParts()
		d.step()
		s := d.producer()
		if l.sink.client.Control.Withdraw(&s.ProducerBatch) {
			d.answered(kafkaclient.Answer{Kind: kafkaclient.Identity, Producer: 1})
		}
		if !s.part.queuedAt.Withdraw(&s.ProducerBatch) {
			t.Fatal("not on its way")
		}
		d.answered(kafkaclient.Answer{Kind: kafkaclient.Answered})
		l.unsignalled = l.unsignalled[:0]
		l.endCall()
	}
	round()
	n := testing.AllocsPerRun(100, round)
	for range 20 { // what other tests left to end allocates, too
		if n > 1 {
			n = min(n, testing.AllocsPerRun(10, round))
		}
	}
	if n > 1 { // the pool of batches is emptied now and then
		t.Errorf("%v allocations for a call", n)
	}
	wantConfirmed(t, outcomes)
}
