package rabbit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The clock by itself, on times of the test's own.
func TestConfirmClock(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	fresh := func(t *testing.T) (*session, confirmClock) {
		w, _, _ := pipe(t)
		go w.run()
		s := &session{wire: w}
		s.writes.Store(7)
		return s, confirmClock{sess: s, round: round{began: 6, ended: 7}, progress: start, timeout: 10 * time.Second, ask: func() {}}
	}
	tick := func(t *testing.T, c *confirmClock, seconds, answers int, last bool, want end) {
		t.Helper()
		if got := c.tick(at(seconds), answers, last); got != want {
			t.Fatalf("after %d s: %d, want %d", seconds, got, want)
		}
	}
	t.Run("nothing is confirmed: dead", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 9, 0, false, answered)
		tick(t, &c, 10, 0, false, dead)
		if s.wire.cause() == nil {
			t.Error("the connection stays")
		}
	})
	t.Run("nothing is confirmed, and the broker answers: late", func(t *testing.T) {
		s, c := fresh(t)
		asked := 0
		c.ask = func() { asked++ }
		tick(t, &c, 4, 0, false, answered)
		if asked > 0 {
			t.Error("the broker is asked early")
		}
		tick(t, &c, 5, 0, false, answered)
		tick(t, &c, 6, 0, false, answered)
		s.heard(at(6), 7)
		tick(t, &c, 7, 0, false, answered)
		tick(t, &c, 11, 0, false, answered)
		s.heard(at(11), 7)
		tick(t, &c, 16, 0, false, answered)
		s.heard(at(16), 7)
		tick(t, &c, 17, 0, false, late)
		if asked != 3 {
			t.Errorf("it is asked %d times, want 3", asked)
		}
	})
	t.Run("the broker answers once, and stands still then: dead", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 5, 0, false, answered)
		s.heard(at(6), 7)
		tick(t, &c, 6, 0, false, answered)
		tick(t, &c, 15, 0, false, answered)
		tick(t, &c, 16, 0, false, dead)
	})
	t.Run("what was written after the question is not read with the answer", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 5, 0, false, answered)
		s.heard(at(6), 6)
		tick(t, &c, 6, 0, false, answered)
		tick(t, &c, 16, 0, false, dead)
	})
	t.Run("confirms of what is in front: on its way still", func(t *testing.T) {
		s, c := fresh(t)
		for i := 1; i < 100; i++ {
			s.confirmed(at(i), round{began: 3, ended: 6})
			tick(t, &c, i, 0, false, answered)
		}
		tick(t, &c, 109, 0, false, dead)
	})
	t.Run("confirms of what is behind: late", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 5, 0, false, answered)
		s.confirmed(at(6), round{began: 7, ended: 8})
		tick(t, &c, 6, 0, false, answered)
		tick(t, &c, 15, 0, false, answered)
		s.confirmed(at(15), round{began: 8, ended: 9})
		tick(t, &c, 16, 0, false, late)
	})
	t.Run("the last of the round is answered, another not: late", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 1, 1, true, answered)
		tick(t, &c, 10, 1, true, answered)
		s.heard(at(10), 7)
		tick(t, &c, 11, 1, true, late)
	})
	t.Run("answers come in: no hurry", func(t *testing.T) {
		_, c := fresh(t)
		for i := range 20 {
			tick(t, &c, 9*i, i, true, answered)
		}
	})
	t.Run("blocked: it stands still, and starts again", func(t *testing.T) {
		s, c := fresh(t)
		s.setBlocked(true)
		tick(t, &c, 3600, 0, true, answered)
		s.setBlocked(false)
		s.lastUnblock.Store(at(3600).UnixNano())
		tick(t, &c, 3609, 0, true, answered)
		s.lastConfirm.Store(at(3605).UnixNano())
		tick(t, &c, 3610, 0, true, late)
	})
}

// slowBroker is a confirm timeout that a broker on a loaded machine keeps: it has half of it to answer a question.
const slowBroker = 4 * time.Second

// A queue that confirms nothing, beside one that does, stands for a quorum queue without a majority: its process is
// suspended. Once is in doubt, twice in a row is its destination's fault, and the first confirm ends that.
func TestUnconfirmedTwice(t *testing.T) {
	b := ownBroker(t)
	b.exchange("events", nil)
	b.exchange("stuck", nil)
	cfg := byKey(b)
	cfg.ConfirmTimeout = slowBroker
	s := start(t, cfg)
	wantConfirmed(t, s.send(event("events", "created"), event("stuck", "created")))
	b.suspend("stuck")

	stuck := event("stuck", "created")
	outcomes, err := s.try(event("events", "created"), stuck, event("events", "created"))
	if err == nil || !strings.Contains(err.Error(), "while the broker answers") {
		t.Errorf("first time: error %v", err)
	}
	wantConfirmed(t, outcomes, 1)
	if outcomes[1].State != sink.Unknown {
		t.Errorf("first time: %s", outcomes[1].State)
	}
	outcomes, err = s.try(stuck, event("events", "created"))
	if err != nil {
		t.Errorf("again: error %v", err)
	}
	wantRejected(t, outcomes[0], sink.Destination, sink.Unconfirmed)
	wantConfirmed(t, outcomes, 0)
	if d := outcomes[0].Fault.Destination; d != `exchange "stuck", routing key "created"` || outcomes[0].Fault.Whole {
		t.Errorf("accused %+v", outcomes[0].Fault)
	}
	// From now on it is answered at once, in every lane, and nothing more is sent to it.
	for lane := range s.lanes {
		began := time.Now()
		outcomes := make([]sink.Outcome, 3)
		call := []*outbox.Event{event("events", "created"), event("stuck", "created"), event("events", "created")}
		b.must(s.Publish(b.ctx, lane, call, outcomes))
		wantConfirmed(t, outcomes, 1)
		wantRejected(t, outcomes[1], sink.Destination, sink.Unconfirmed)
		if took := time.Since(began); took >= cfg.ConfirmTimeout {
			t.Errorf("lane %d was held up for %s", lane, took)
		}
	}
	if p := s.Stats().Paused; len(p) != 1 || p[0].Reason != sink.Unconfirmed {
		t.Errorf("paused: %+v", p)
	}
	b.resume("stuck")
	until(t, "the queue that works again", func() bool { return s.send(stuck)[0].State == sink.Confirmed })
	if n := b.depth("stuck"); n != 4 { // one before, two attempts that were late, and the last
		t.Errorf("%d messages in the queue", n)
	}
	if len(s.lanes[0].late) != 0 || len(s.Stats().Paused) != 0 {
		t.Error("a confirmed destination is remembered as late")
	}
	until(t, "the channels that were kept are closed", func() bool { return b.channelsOf(s) <= len(s.lanes) })
	if n := s.Stats().Channels; n != len(s.lanes) {
		t.Errorf("%d channels, %d lanes", n, len(s.lanes))
	}
}

// standing is the first connection.
func (r *running) standing() *session {
	r.links[0].mu.Lock()
	defer r.links[0].mu.Unlock()
	return r.links[0].sess
}

// suspend has a queue's process stand still until resume, or the end of the test: it could not be deleted.
func (b *broker) suspend(queue string) {
	b.t.Helper()
	b.process("suspend", queue)
	b.t.Cleanup(func() { b.resume(queue) })
}

func (b *broker) resume(queue string) { b.process("resume", queue) }

func (b *broker) process(do, queue string) {
	b.t.Helper()
	b.ctl("eval", fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"%s">>)), sys:%s(amqqueue:get_pid(Q)).`, b.vhost(), queue, do))
}

// channelsOf is how many channels the broker knows of the sink's first connection.
func (b *broker) channelsOf(s *running) int {
	b.t.Helper()
	out, err := b.real.Ctl(b.ctx, "list_connections", "-s", "client_properties", "channels")
	b.must(err)
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"`+s.cfg.ConnectionName+`"`) {
			fields := strings.Fields(line)
			n, err := strconv.Atoi(fields[len(fields)-1])
			b.must(err)
			return n
		}
	}
	b.t.Fatalf("the sink has no connection:\n%s", out)
	return 0
}

// The answer is waited for as long as its connection stands: then the pair is tried again, and once is enough to accuse it.
func TestStuckOverALostConnection(t *testing.T) {
	b := ownBroker(t)
	b.exchange("events", nil)
	b.exchange("stuck", nil)
	cfg := byKey(b)
	cfg.ConfirmTimeout = slowBroker
	s := start(t, cfg)
	wantConfirmed(t, s.send(event("events", "created"), event("stuck", "created")))
	b.suspend("stuck")
	held := []*outbox.Event{event("stuck", "created"), event("stuck", "created")} // several wait for one answer
	accused := func() bool {
		outcomes, err := s.try(append(held, event("events", "created"))...)
		return err == nil && outcomes[0].State == sink.Rejected && outcomes[1].State == sink.Rejected
	}
	until(t, "accused", accused)
	before := s.standing()
	before.kill(errors.New("the test ends it"))
	until(t, "reconnected", func() bool { up, _ := s.Up(); return up && s.standing() != before })
	began := time.Now()
	until(t, "accused again", accused)
	if took := time.Since(began); took < cfg.ConfirmTimeout {
		t.Errorf("accused after %s without having been sent", took)
	}
	b.resume("stuck")
	until(t, "the queue that works again", func() bool { return s.send(held...)[1].State == sink.Confirmed })
}

// When nothing on the connection is confirmed nobody is accused: the connection is given up, and the event in doubt.
func TestNothingConfirmed(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	proxy := startProxy(t, b.real.Addr())
	cfg := b.config()
	cfg.URLs, cfg.ConfirmTimeout = []string{b.through(proxy)}, slowBroker
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
	b := ownBroker(t)
	b.exchange("events", nil)
	cfg := b.config()
	cfg.ConfirmTimeout = slowBroker
	again := make(chan int, 10)
	cfg.Hooks.Connected = func(n int, reconnected bool) {
		if reconnected {
			again <- n
		}
	}
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
	until(t, "blocked", func() bool { up, why := s.Up(); return !up && strings.Contains(why, "blocked") })
	select { // three timeouts long
	case <-done:
		t.Fatal("published to a broker that takes nothing")
	case <-again:
		t.Fatal("a blocked connection was given up")
	case <-time.After(3 * cfg.ConfirmTimeout):
	}
	b.must(b.real.Alarm(b.ctx, false))
	wantConfirmed(t, <-done)
	if len(again) > 0 {
		t.Error("a blocked connection was given up")
	}
	if n := b.depth("events"); n != 257 {
		t.Errorf("%d messages for 257 events", n)
	}
	if up, why := s.Up(); !up {
		t.Error(why)
	}
}
