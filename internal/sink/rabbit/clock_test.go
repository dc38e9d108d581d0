package rabbit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A queue that confirms nothing, beside one that does, stands for a quorum queue without a majority: its process is
// suspended. Once is in doubt, twice in a row is its destination's fault, and the first confirm ends that.
func TestUnconfirmedTwice(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	b.exchange("stuck", nil)
	cfg := byKey(b)
	cfg.ConfirmTimeout = 500 * time.Millisecond
	s := start(t, cfg)
	wantConfirmed(t, s.send(event("events", "created"), event("stuck", "created")))
	process := func(do string) {
		b.ctl("eval", fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"stuck">>)), sys:%s(amqqueue:get_pid(Q)).`, b.vhost(), do))
	}
	process("suspend")

	stuck := event("stuck", "created")
	outcomes, err := s.try(event("events", "created"), stuck, event("events", "created"))
	if err == nil || !strings.Contains(err.Error(), "while others are confirmed") {
		t.Errorf("first time: error %v", err)
	}
	wantConfirmed(t, outcomes, 1)
	if outcomes[1].State != sink.Unknown {
		t.Errorf("first time: %s", outcomes[1].State)
	}
	for range 2 {
		outcomes, err = s.try(stuck, event("events", "created"))
		if err != nil {
			t.Errorf("again: error %v", err)
		}
		wantRejected(t, outcomes[0], sink.Destination, sink.Unconfirmed)
		wantConfirmed(t, outcomes, 0)
	}
	if d := outcomes[0].Fault.Destination; d != `exchange "stuck", routing key "created"` {
		t.Errorf("accused %s", d)
	}
	process("resume")
	wantConfirmed(t, s.send(stuck))
	if len(s.lanes[0].late) != 0 {
		t.Error("a confirmed destination is remembered as late")
	}
}

// When nothing on the connection is confirmed nobody is accused: the connection is given up, and the event in doubt.
func TestNothingConfirmed(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	proxy := startProxy(t, b.real.Addr())
	cfg := b.config()
	cfg.URLs, cfg.ConfirmTimeout = []string{b.through(proxy)}, 300*time.Millisecond
	s := start(t, cfg)
	wantConfirmed(t, s.send(event("k", "created")))
	for range 3 {
		proxy.Hold(devenv.Down)
		outcomes, err := s.try(events(5, "created")...)
		if err == nil {
			t.Fatal("no error")
		}
		for _, o := range outcomes {
			if o.State != sink.Unknown {
				t.Errorf("%s %v", o.State, o.Fault)
			}
		}
		proxy.Release(devenv.Down)
		wantConfirmed(t, s.send(event("k", "created")))
	}
}

// While the broker blocks, the confirm clock stands still and nothing is sent again.
func TestBlockedPastTheConfirmTimeout(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	cfg := b.config()
	cfg.ConfirmTimeout = 200 * time.Millisecond
	blocked := make(chan bool, 10)
	cfg.Hooks.Blocked = func(_ int, on bool) { blocked <- on }
	lost := make(chan int, 10)
	cfg.Hooks.ConnectionDown = func(n int) { lost <- n }
	s := start(t, cfg)
	wantConfirmed(t, s.send(event("k", "created")))
	b.must(b.real.Alarm(b.ctx, true))
	t.Cleanup(func() { b.must(b.real.Alarm(b.ctx, false)) })

	var large []*outbox.Event // more than the sockets between hold
	for range 256 {
		ev := event("k", "created")
		ev.Payload = make([]byte, 64<<10)
		large = append(large, ev)
	}
	done := make(chan []sink.Outcome, 1)
	go func() { done <- s.send(large...) }()
	if !<-blocked {
		t.Error("unblocked first")
	}
	if up, why := s.Up(); up || !strings.Contains(why, "blocked") {
		t.Errorf("up %v, %s", up, why)
	}
	select { // ten timeouts long
	case <-done:
		t.Fatal("published to a broker that takes nothing")
	case <-lost:
		t.Fatal("a blocked connection was given up")
	case <-time.After(10 * cfg.ConfirmTimeout):
	}
	b.must(b.real.Alarm(b.ctx, false))
	wantConfirmed(t, <-done)
	if n := b.depth("events"); n != 257 {
		t.Errorf("%d messages for 257 events", n)
	}
	if up, why := s.Up(); !up {
		t.Error(why)
	}
}
