//go:build testall

// Tests that reconfigure the broker, on one of this process.

package rabbit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

// ownBroker is for tests that reconfigure it: limits, alarms, queues that stand still.
func ownBroker(t testing.TB) *broker {
	t.Helper()
	real := servers.OwnRabbitMQ(t)
	return connect(t, real, real.URL())
}

// ownVHost is a virtual host of that broker, for tests that stop what is in it, and mostly wait.
// They run next to each other, and after those that reconfigure the broker.
func ownVHost(t *testing.T) *broker {
	t.Helper()
	t.Parallel()
	real := servers.OwnRabbitMQ(t)
	return connect(t, real, real.VHost(t))
}

// eval evaluates an Erlang expression in the broker.
func (b *broker) eval(format string, args ...any) string {
	b.t.Helper()
	value, err := b.real.Eval(b.ctx, fmt.Sprintf(format, args...))
	b.must(err)
	return value
}

// alarm sets or clears the memory alarm.
func (b *broker) alarm(on bool) { b.must(b.real.Alarm(b.ctx, on)) }

// limit sets the size of messages that channels take which are opened afterwards.
func (b *broker) limit(bytes int) { b.must(b.real.SetMaxMessageSize(b.ctx, bytes)) }

// A broker that takes nothing for the time being.
func TestConformanceBlocked(t *testing.T) {
	blocked := func(kind sinktest.Kind) bool { return kind == sinktest.Blocked }
	sinktest.Run(t, blocked, func(t *testing.T) sinktest.Broker {
		c := openConformance(t, ownBroker(t))
		c.block = c.alarm
		t.Cleanup(func() { c.alarm(false) })
		return c
	})
}

func TestTooLargeForTheBroker(t *testing.T) {
	b := ownBroker(t)
	b.exchange("events", nil)
	b.limit(65536)
	t.Cleanup(func() { b.limit(134217728) })
	s := start(t, b.config())
	large := func() *event.Event {
		ev := newEvent("k", "created")
		ev.Payload = make([]byte, 70000)
		return ev
	}
	got := findsPoison(t, b, s, large, sink.Permanent, sink.TooLarge)
	want := "the body has 70000 bytes, the limit is 65536 (max_message_size, as the broker said at "
	if w := got[0].Fault.Text; !strings.HasPrefix(w, want) || !strings.HasSuffix(w, ": raise it, restart the relay, then replay)") {
		t.Errorf("text %q", w)
	}
	// The other lanes of the connection know the limit, and it costs their events nothing.
	before, good := b.depth("events"), events(20, "created")
	outcomes := make([]sink.Outcome, 21)
	b.must(s.Publish(b.ctx, 1, append(good, large()), outcomes))
	wantConfirmed(t, outcomes, 20)
	wantRejected(t, outcomes[20], sink.Permanent, sink.TooLarge)
	if w := outcomes[20].Fault.Text; !strings.HasPrefix(w, want) {
		t.Errorf("of an event that was not sent the text is %q", w)
	}
	if n := b.depth("events") - before; n != len(good) {
		t.Errorf("%d messages for %d events next to one that is too large", n, len(good))
	}
	// Once the limit is raised and the connection has ended, nothing that the broker has said
	// before counts.
	b.limit(134217728)
	s.firstSession().Kill(errors.New("the test ends it"))
	for lane := range s.lanes {
		await.Until(t, "the next connection", func() bool {
			outcomes := make([]sink.Outcome, 1)
			err := s.Publish(b.ctx, lane, []*event.Event{large()}, outcomes)
			return err == nil && outcomes[0].State == sink.Confirmed
		})
	}
}

// A queue that confirms nothing, next to one that does, simulates a quorum queue without a
// majority: its process is suspended. What it has not answered is its destination's fault, all of
// it at once: the lane goes on after one wait, however many events of the queue a call has. The
// first confirm ends that.
func TestUnconfirmed(t *testing.T) {
	b := ownVHost(t)
	b.exchange("events", nil)
	b.exchange("stuck", nil)
	cfg := byKey(b)
	cfg.ConfirmTimeout, cfg.ConnectionName = slowBroker, t.Name()
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("events", "created"), newEvent("stuck", "created")))
	b.suspend("stuck")

	stuck := newEvent("stuck", "created")
	call := []*event.Event{newEvent("events", "created"), stuck, newEvent("events", "created")}
	for range 7 {
		call = append(call, newEvent("stuck", "created"))
	}
	outcomes, calls := s.deliver(append(call, newEvent("events", "created"))...)
	if calls > 1 {
		t.Errorf("the lane has stood still for %d calls", calls)
	}
	wantConfirmed(t, outcomes, 1, 3, 4, 5, 6, 7, 8, 9)
	for _, i := range []int{1, 3, 4, 5, 6, 7, 8, 9} {
		wantRejected(t, outcomes[i], sink.Destination, sink.Unconfirmed)
	}
	f := outcomes[1].Fault
	if f.Destination != `exchange "stuck", routing key "created"` || f.Whole || f.Text != "no answer for 8s while the broker answers" {
		t.Errorf("accused %+v", f)
	}
	// A probe waits for its answer longer than the timeout, and nothing waits for it: the lanes go
	// on. The answer shows that the queue works again.
	probed := make(chan sink.Outcome, 1)
	go func() { probed <- s.probe(stuck, false) }()
	await.Until(t, "the probe is sent", func() bool { return s.Status().PendingConfirms == 1 })
	for began := time.Now(); time.Since(began) < 3*cfg.ConfirmTimeout; {
		wantConfirmed(t, s.send(newEvent("events", "created")))
	}
	select {
	case o := <-probed:
		t.Fatalf("answered: %s %+v", o.State, o.Fault)
	default:
	}
	b.resume("stuck")
	wantConfirmed(t, []sink.Outcome{<-probed})
	wantConfirmed(t, s.send(newEvent("stuck", "created")))
	await.Until(t, "the probe's channel is closed", func() bool { return b.channelsOf(s) < conn.EnoughChannels(len(s.lanes)) })
}

// A queue that stands still may be behind any number of paused destinations. Their probes leave
// room for that of another one, which is fixed.
func TestProbesOfAStuckQueueLeaveRoom(t *testing.T) {
	b := ownVHost(t)
	b.exchange("events", nil)
	b.exchange("stuck", nil)
	cfg := byKey(b)
	cfg.ConfirmTimeout = slowBroker
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("stuck", "created")))
	b.suspend("stuck")
	var stuck []*event.Event
	for i := range conn.MaxProbes + conn.MaxStuck + 1 {
		stuck = append(stuck, newEvent("stuck", fmt.Sprint("kind-", i)))
	}
	for _, o := range s.send(stuck...) {
		wantRejected(t, o, sink.Destination, sink.Unconfirmed)
	}
	probed := make(chan sink.Outcome, len(stuck))
	probe := func(ev *event.Event, to chan<- sink.Outcome) {
		out, err := s.Probe(b.ctx, ev, false)
		if err != nil {
			t.Errorf("probe: %v", err)
		}
		to <- out
	}
	for _, ev := range stuck {
		go probe(ev, probed)
	}
	await.Until(t, "as many probes are sent as may be", func() bool { return s.Status().PendingConfirms == conn.MaxStuck })
	fixed := make(chan sink.Outcome, 1)
	go probe(newEvent("events", "created"), fixed)
	select {
	case o := <-fixed:
		wantConfirmed(t, []sink.Outcome{o})
	case <-probed:
		b.resume("stuck")
		for range len(stuck) - 1 {
			<-probed
		}
		<-fixed
		t.Fatal("it waits for a probe of the queue that stands still")
	}
	b.resume("stuck")
	for range stuck {
		wantConfirmed(t, []sink.Outcome{<-probed})
	}
	if n := len(s.unanswered.dests); n > 0 {
		t.Errorf("%d destinations that answer are remembered as stuck", n)
	}
}

// A probe that has a private connection is not waited for longer than any call, because others wait
// for that connection. One whose connection ends is in doubt.
func TestProbeOfAStuckQueueEnds(t *testing.T) {
	b := ownVHost(t)
	b.exchange("events", nil)
	cfg := b.config()
	cfg.ConfirmTimeout = slowBroker
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("k", "created")))
	b.suspend("events")
	late := s.probe(newEvent("k", "created"), true)
	wantRejected(t, late, sink.Destination, sink.Unconfirmed)
	failed := make(chan error, 1)
	go func() {
		out, err := s.Probe(b.ctx, newEvent("k", "created"), false)
		if out.State != sink.Unknown {
			t.Errorf("a probe that was sent is %s", out.State)
		}
		failed <- err
	}()
	await.Until(t, "the probe is sent", func() bool { return s.Status().PendingConfirms == 1 })
	s.firstSession().Kill(errors.New("the test ends it"))
	if err := <-failed; err == nil {
		t.Error("no error")
	}
}

// A suspect whose queue stands still keeps its private connection for long. A lane that needs one
// does not wait for it.
func TestSuspectOfAStuckQueueLeavesRoom(t *testing.T) {
	b := ownVHost(t)
	b.exchange("events", nil)
	b.exchange("stuck", nil)
	cfg := byKey(b)
	cfg.ConfirmTimeout = time.Hour
	s := start(t, cfg)
	b.suspend("stuck")
	stuck := newEvent("stuck", "created")
	place, _ := s.Place(stuck)
	s.unanswered.noteAnswer(place.Dest, true)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	probed := make(chan sink.Outcome, 1)
	go func() {
		out, _ := s.Probe(ctx, stuck, true) // the error says that the context has ended
		probed <- out
	}()
	await.Until(t, "the suspect is sent", func() bool { return s.Status().PendingConfirms == 1 })
	s.lanes[0].privateEvents = 1
	sent := make(chan []sink.Outcome, 1)
	go func() { sent <- s.send(newEvent("events", "created")) }()
	await.Until(t, "the lane has a connection of its own", func() bool { return len(sent) == 1 })
	wantConfirmed(t, <-sent)
	cancel()
	if out := <-probed; out.State != sink.Unknown {
		t.Errorf("the suspect is %s", out.State)
	}
}

// suspend has a queue's process stand still until resume, or the end of the test: it could not be
// deleted.
func (b *broker) suspend(queue string) {
	b.t.Helper()
	b.process("suspend", queue)
	b.t.Cleanup(func() { b.resume(queue) })
}

func (b *broker) resume(queue string) { b.process("resume", queue) }

func (b *broker) process(do, queue string) {
	b.t.Helper()
	b.eval(`{ok, Q} = rabbit_amqqueue:lookup(%s), sys:%s(amqqueue:get_pid(Q)).`, b.named("queue", queue), do)
}

// named is the broker's name of a queue or exchange, in Erlang.
func (b *broker) named(kind, name string) string {
	b.t.Helper()
	u, err := amqp.ParseURI(b.url)
	b.must(err)
	return fmt.Sprintf(`rabbit_misc:r(<<"%s">>, %s, <<"%s">>)`, u.Vhost, kind, name)
}

// channelsOf is how many channels the broker knows of the sink's first connection. A connection of
// another test may be on its way in or out.
func (b *broker) channelsOf(s *running) int {
	b.t.Helper()
	n, err := strconv.Atoi(b.eval(`lists:sum([N || P <- rabbit_networking:local_connections(),
		[{client_properties, Props}, {channels, N}] <- [catch rabbit_networking:connection_info(P, [client_properties, channels])],
		is_list(Props), lists:member({<<"connection_name">>, longstr, <<"%s">>}, Props)]).`, s.cfg.ConnectionName))
	b.must(err)
	if n == 0 {
		b.t.Fatal("the sink has no connection")
	}
	return n
}

// While the broker blocks, the confirm clock stops and nothing is sent again.
func TestBlockedPastTheConfirmTimeout(t *testing.T) {
	b := ownBroker(t)
	b.exchange("events", nil)
	cfg := b.config()
	cfg.ConfirmTimeout = slowBroker
	again := make(chan int, 10)
	cfg.Connected = func(reconnected bool) {
		if reconnected {
			again <- 1
		}
	}
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("k", "created")))
	b.alarm(true)
	t.Cleanup(func() { b.alarm(false) })

	var large []*event.Event // more than the sockets between hold
	for range 256 {
		ev := newEvent("k", "created")
		ev.Payload = make([]byte, 64<<10)
		large = append(large, ev)
	}
	done := make(chan []sink.Outcome, 1)
	go func() { done <- s.send(large...) }()
	await.Until(t, "blocked", func() bool { up, why := s.Up(); return !up && strings.Contains(why, "blocked") })
	select { // longer than the timeout
	case <-done:
		t.Fatal("published to a broker that takes nothing")
	case <-again:
		t.Fatal("a blocked connection was given up")
	case <-time.After(cfg.ConfirmTimeout + time.Second):
	}
	b.alarm(false)
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

// An exchange whose type the broker no longer knows, as after a plugin was disabled: a 406 that
// names the exchange.
func TestExchangeOfADisabledPlugin(t *testing.T) {
	b := ownVHost(t)
	b.exchange("events", nil)
	b.exchange("special", nil)
	s := start(t, byKey(b))
	b.exchangeType("special", "of_a_plugin")
	poison := func() *event.Event { return newEvent("special", "created") }
	got := findsPoison(t, b, s, poison, sink.Destination, sink.BrokerException)
	if f := got[0].Fault; !strings.HasPrefix(f.Text, "406 ") || !f.Whole || f.Destination != `exchange "special"` {
		t.Errorf("fault %+v", f)
	}
	b.exchangeType("special", "topic")
	wantConfirmed(t, s.send(poison()))
}

// What the broker fails over itself ends the connection with a 541, which names nobody: the message
// has to be searched for, and may go some other time.
func TestInternalError(t *testing.T) {
	b := ownVHost(t)
	b.exchange("events", nil)
	b.exchange("broken", nil)
	b.exchange("slow", nil)
	s := start(t, byKey(b))
	b.exchangeType("broken", "42") // no name of a type at all
	poison := func() *event.Event { return newEvent("broken", "created") }
	got := findsPoison(t, b, s, poison, sink.Transient, sink.BrokerException)
	if f := got[0].Fault; !strings.HasPrefix(f.Text, "541 ") || f.Whole || f.Destination != `exchange "broken", routing key "created"` {
		t.Errorf("fault %+v", f)
	}
	again := poison()
	wantRejected(t, s.send(again)[0], sink.Transient, sink.BrokerException)

	// The connection takes an event of another lane with it, which is not accused, though it is
	// alone in its call: it is sent again on a private one.
	b.suspend("slow")
	before, slow := s.firstSession(), make(chan []sink.Outcome, 1)
	go func() {
		outcomes := make([]sink.Outcome, 1)
		if err := s.Publish(b.ctx, 1, []*event.Event{newEvent("slow", "created")}, outcomes); err != nil {
			t.Errorf("publish: %v", err)
		}
		slow <- outcomes
	}()
	await.Until(t, "it is sent", func() bool { return s.Status().PendingConfirms == 1 })
	done := make(chan []sink.Outcome, 1)
	go func() { done <- s.send(again) }()
	<-before.Gone
	await.Until(t, "it is sent again", func() bool { return s.Status().PendingConfirms == 1 })
	b.resume("slow")
	wantConfirmed(t, <-slow)
	wantRejected(t, (<-done)[0], sink.Transient, sink.BrokerException)
	b.exchangeType("broken", "topic")
	wantConfirmed(t, s.send(again))
}

// exchangeType overwrites the type of an exchange in the broker's memory.
func (b *broker) exchangeType(exchange, typ string) {
	b.t.Helper()
	b.eval(`{ok, X} = rabbit_exchange:lookup(%s), ok = mnesia:dirty_write(rabbit_exchange, setelement(3, X, %s)).`, b.named("exchange", exchange), typ)
}

// A queue whose process dies with messages that it has not confirmed answers them with a nack, as a
// full one does.
func TestQueueDies(t *testing.T) {
	b := ownVHost(t)
	b.exchange("events", nil)
	b.exchange("dying", nil)
	cfg := byKey(b)
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("events", "created"), newEvent("dying", "created")))
	b.suspend("dying")
	dying := newEvent("dying", "created")
	done := make(chan []sink.Outcome, 1)
	go func() { done <- s.send(newEvent("events", "created"), dying, newEvent("events", "created")) }()
	await.Until(t, "the others are stored", func() bool { return b.depth("events") == 3 })
	b.eval(`{ok, Q} = rabbit_amqqueue:lookup(%s), exit(amqqueue:get_pid(Q), kill).`, b.named("queue", "dying"))
	outcomes := <-done
	wantConfirmed(t, outcomes, 1)
	wantRejected(t, outcomes[1], sink.Destination, sink.Nacked)
	if outcomes[1].Fault.Whole {
		t.Error("the whole exchange is accused")
	}
	await.Until(t, "the queue is started again", func() bool { return s.send(dying)[0].State == sink.Confirmed })
}

// The broker says how many channels a connection may have. Lanes and probes take turns on them, and
// no connection is given up for want of one.
func TestFewChannels(t *testing.T) {
	b := ownBroker(t)
	b.only()
	t.Cleanup(func() { b.eval("application:set_env(rabbit, channel_max, 2047).") })
	for _, most := range []int{1, 3, 10} {
		t.Run(strconv.Itoa(most), func(t *testing.T) {
			b.eval("application:set_env(rabbit, channel_max, %d).", most)
			cfg := b.config()
			lost, lines := watched(b, &cfg)
			detail := fmt.Sprintf("the broker allows %d, 33 are enough for 8 lanes", most)
			wantFinding(t, Check(b.ctx, cfg), "channels", false, detail, "set channel_max to 33 or more")
			s := start(t, cfg)
			s.everywhere(b, 200)
			if n := lost.Load(); n > 0 {
				t.Errorf("%d connections were lost", n)
			}
			if n := lines.FilterMessage("broker allows few channels").Len(); n != 2 {
				t.Errorf("%d lines of two connections say that", n)
			}
		})
	}
}

// A queue that stands still keeps lanes and probes waiting, each on a channel. Others go on as long
// as there are four.
func TestFewChannelsAndAStuckQueue(t *testing.T) {
	b := ownBroker(t)
	b.eval("application:set_env(rabbit, channel_max, 4).")
	t.Cleanup(func() { b.eval("application:set_env(rabbit, channel_max, 2047).") })
	b.exchange("events", nil)
	b.exchange("stuck", nil)
	cfg := byKey(b)
	cfg.ConfirmTimeout = slowBroker
	lost, _ := watched(b, &cfg)
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("stuck", "created")))
	b.suspend("stuck")
	wantRejected(t, s.send(newEvent("stuck", "created"))[0], sink.Destination, sink.Unconfirmed)
	probed := make(chan sink.Outcome, 1)
	go func() { probed <- s.probe(newEvent("stuck", "created"), false) }()
	await.Until(t, "the probe is sent", func() bool { return s.Status().PendingConfirms == 1 })
	for lane := range s.lanes {
		outcomes := make([]sink.Outcome, 1)
		b.must(s.Publish(b.ctx, lane, []*event.Event{newEvent("events", "created")}, outcomes))
		wantConfirmed(t, outcomes)
	}
	b.resume("stuck")
	wantConfirmed(t, []sink.Outcome{<-probed})
	if n := lost.Load(); n > 0 {
		t.Errorf("%d connections were lost", n)
	}
}

// The broker says how large a frame may be. What does not fit is a fault of its event.
func TestSmallFrames(t *testing.T) {
	b := ownBroker(t)
	b.eval("application:set_env(rabbit, frame_max, 8192).")
	t.Cleanup(func() { b.eval("application:set_env(rabbit, frame_max, 131072).") })
	b.exchange("events", nil)
	cfg := b.config()
	lost, _ := watched(b, &cfg)
	s := start(t, cfg)
	long := func(n int) *event.Event {
		ev := newEvent("k", "created")
		ev.Headers = fmt.Appendf(nil, `{"h": %q}`, strings.Repeat("x", n))
		ev.Payload = make([]byte, 100_000)
		return ev
	}
	outcomes := s.send(long(7000), long(9000), newEvent("k", strings.Repeat("t", 255)))
	wantConfirmed(t, outcomes, 1)
	wantRejected(t, outcomes[1], sink.Permanent, sink.TooLarge)
	if n := lost.Load(); n > 0 {
		t.Errorf("%d connections were lost", n)
	}
}

// Without room for a private connection, or for a channel on it, an event over which the broker
// closes connections is found on the shared one.
func TestKillerWithoutAPrivateConnection(t *testing.T) {
	for limit, most := range map[string]int{"max-connections": 1, "max-channels": 2} {
		t.Run(limit, func(t *testing.T) { killerWithout(t, limit, most) })
	}
}

func killerWithout(t *testing.T, limit string, most int) {
	t.Helper()
	b := parallelBroker(t)
	b.exchange("events", nil)
	cfg := b.config()
	user := b.user("", ".*", "")
	cfg.URLs = []string{user}
	b.must(b.real.LimitUser(b.ctx, user, limit, most))
	cfg.Connections = 1 // a second one would set the limit again while lanes of the first send
	s := startUnchecked(t, cfg, 1<<30)
	poison := func() *event.Event {
		ev := newEvent("k", "created")
		ev.Headers = fmt.Appendf(nil, `{"h": %q}`, strings.Repeat("x", 140000))
		return ev
	}
	outcomes, _ := s.deliver(newEvent("a", "created"), poison(), newEvent("b", "created"))
	wantConfirmed(t, outcomes, 1)
	wantRejected(t, outcomes[1], sink.Transient, sink.BrokerException)
	wantRejected(t, s.probe(poison(), true), sink.Transient, sink.BrokerException)
	wantConfirmed(t, s.send(events(10, "created")...))
}

// In an upgrade the new relay stands by without a channel. When the one before has ended it leads,
// and soon has its share of what the user may have, whatever the broker still counted at first.
func TestChannelsInAnUpgrade(t *testing.T) {
	b := parallelBroker(t)
	b.only()
	user := b.user("", ".*", "")
	b.must(b.real.LimitUser(b.ctx, user, "max-channels", 82))
	config := func() Config {
		cfg := b.config()
		watched(b, &cfg)
		cfg.Lanes, cfg.URLs = 32, []string{user}
		return cfg
	}
	before := start(t, config())
	await.Until(t, "the channels of the one before", func() bool { return before.Status().Channels == 80 })
	s, err := New(config())
	b.must(err)
	next := run(t, s)
	await.Until(t, "the connections of the next", func() bool { return next.Status().Connections == 2 })
	if n := next.Status().Channels; n != 0 {
		t.Errorf("a standby has %d channels", n)
	}
	next.Lead(true) // earlier than it would: the other has all channels
	await.Until(t, "a refusal", func() bool { return next.maxChannels.Load() > 0 })
	before.end()
	// 41 on each connection: 16 of lanes, 18 of probes
	await.Until(t, "the channels of the next", func() bool { return next.Status().Channels == 2*(16+18) })
	next.everywhere(b, 20)
	next.Lead(false)
	await.Until(t, "the channels to be closed", func() bool { return next.Status().Channels == 0 })
}

// With so few channels that probes have none of their own, a queue that stands still behind many
// destinations costs the others one channel.
func TestProbesShareOneTurn(t *testing.T) {
	b := ownBroker(t)
	b.exchange("events", nil)
	b.exchange("stuck", nil)
	b.eval("application:set_env(rabbit, channel_max, 3).")
	t.Cleanup(func() { b.eval("application:set_env(rabbit, channel_max, 2047).") })
	cfg := byKey(b)
	watched(b, &cfg)
	cfg.ConfirmTimeout = slowBroker
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("stuck", "created")))
	b.suspend("stuck")
	const probes = 30
	var all sync.WaitGroup
	var answered atomic.Int64
	for i := range probes {
		all.Go(func() {
			_, _ = s.Probe(b.ctx, newEvent("stuck", fmt.Sprint("kind-", i)), false)
			answered.Add(1)
		})
	}
	await.Until(t, "a probe of each connection", func() bool { return s.Status().PendingConfirms == 2 })
	for range 3 {
		for lane := range s.lanes {
			outcomes := make([]sink.Outcome, 1)
			b.must(s.Publish(b.ctx, lane, []*event.Event{newEvent("events", "created")}, outcomes))
			wantConfirmed(t, outcomes)
		}
	}
	if n := answered.Load(); n > probes/2 {
		t.Errorf("%d of %d probes were answered before the events of others", n, probes)
	}
	b.resume("stuck")
	all.Wait()
}
