package rabbit

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// byKey publishes to the exchange that the event's key names, which is a column, too: what is made
// of keys is not shown.
func byKey(b *broker) Config {
	cfg := b.config()
	cfg.Exchange, cfg.Columns = tpl(b.t, "{column:exchange}"), []string{"exchange"}
	return cfg
}

// thousand are two calls' worth of good events with one poison in the middle of each.
func thousand(poison func() *event.Event) (calls [2][]*event.Event, at int) {
	at = 300
	for c := range calls {
		calls[c] = events(500, "created")
		for _, ev := range calls[c] {
			ev.Key, ev.Columns[0] = []byte("events"), []byte("events")
		}
		calls[c][at] = poison()
	}
	return calls, at
}

// findsPoison publishes a thousand events of which two are poison, and wants only those rejected
// and all others stored.
func findsPoison(t *testing.T, b *broker, s *running, poison func() *event.Event, class sink.Class, reason sink.Reason) []sink.Outcome {
	t.Helper()
	calls, at := thousand(poison)
	var rejected []sink.Outcome
	good := map[string]bool{}
	tries := 0
	for _, call := range calls {
		outcomes, n := s.deliver(call...)
		tries += n
		wantConfirmed(t, outcomes, at)
		wantRejected(t, outcomes[at], class, reason)
		rejected = append(rejected, outcomes[at])
		for i, ev := range call {
			if i != at {
				good[string(ev.ID)] = true
			}
		}
	}
	total := b.depth("events")
	for _, m := range b.take("events", total) {
		delete(good, m.MessageId)
	}
	if len(good) > 0 {
		t.Errorf("%d confirmed events are not in the queue", len(good))
	}
	t.Logf("%d events, %d duplicates, %d calls", 998, total-998, tries)
	return rejected
}

// A dead letter is replayed in the call that has the mirror's copy of it: both have one position.
// A return belongs to the one that was going there; taken for the other's, it would lose an event.
func TestReturnOfOneOfTwo(t *testing.T) {
	for name, bound := range map[string]string{"the copy is routed": "mirror", "the replay is routed": "events", "neither is": ""} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			for _, exchange := range []string{"events", "mirror"} {
				if exchange == bound {
					b.exchange(exchange, nil)
				} else {
					b.bare(exchange, "topic")
				}
			}
			s := start(t, byKey(b))
			replay := newEvent("events", "created")
			replay.Replay = true
			twin := *replay
			twin.Replay, twin.Copy, twin.Route = false, true, &event.Route{Name: []byte("mirror"), RoutingKey: []byte("dead")}
			twin.Hash++
			for _, call := range [][]*event.Event{{replay, &twin}, {&twin, replay}} {
				for i, o := range s.send(call...) {
					going := "events"
					if call[i] == &twin {
						going = "mirror"
					}
					if going == bound {
						wantConfirmed(t, []sink.Outcome{o})
						continue
					}
					wantRejected(t, o, sink.Destination, sink.Unroutable)
					if !strings.Contains(o.Fault.Destination, going) {
						t.Errorf("what was going to %s is returned by %s", going, o.Fault.Destination)
					}
				}
			}
		})
	}
}

// Each way in which a destination refuses: a thousand events are delivered but for two, which are
// rejected as the destination's fault. Once it is fixed the next event flows, with nothing known
// against it any more.
func TestDestinationFaults(t *testing.T) {
	for name, c := range map[string]struct {
		exchange, typ string
		sink.Reason
		accused string
		breaks  func(b *broker, cfg *Config) (fix func())
	}{
		"unroutable": {
			"bare", "created", sink.Unroutable, `exchange "bare", routing key "created"`,
			func(b *broker, _ *Config) func() {
				b.bare("bare", "topic")
				return func() { b.must(b.ch.QueueBind("events", "#", "bare", false, nil)) }
			},
		},
		"missing exchange": {
			"nowhere", "created", sink.NoExchange, `exchange "nowhere"`,
			func(b *broker, _ *Config) func() { return func() { b.exchange("nowhere", nil) } },
		},
		"forbidden exchange": {
			"forbidden", "created", sink.NotPermitted, `exchange "forbidden"`,
			func(b *broker, cfg *Config) func() {
				b.exchange("forbidden", nil)
				writer := b.user("", "^events$", "")
				cfg.URLs = []string{writer}
				return func() { b.must(b.real.Permit(b.ctx, writer, "", "^(events|forbidden)$", "")) }
			},
		},
		"internal exchange": { // nobody may publish there: a 403, as without the right
			"internal", "created", sink.NotPermitted, `exchange "internal"`,
			func(b *broker, _ *Config) func() {
				b.exchanges = append(b.exchanges, "internal")
				b.must(b.ch.ExchangeDeclare("internal", "topic", true, false, true, false, nil))
				return func() {
					b.must(b.ch.ExchangeDelete("internal", false, false))
					b.must(b.ch.ExchangeDeclare("internal", "topic", true, false, false, false, nil))
					b.must(b.ch.QueueBind("events", "#", "internal", false, nil))
				}
			},
		},
		"forbidden topic": {
			"events", "secret", sink.NotPermitted, `exchange "events", routing key "secret"`,
			func(b *broker, cfg *Config) func() {
				topical := b.user("", ".*", "")
				cfg.URLs = []string{topical}
				b.must(b.real.PermitTopics(b.ctx, topical, "events", "^created$", ".*"))
				return func() { b.must(b.real.PermitTopics(b.ctx, topical, "events", ".*", ".*")) }
			},
		},
		"full queue": {
			"small", "created", sink.Nacked, `exchange "small", routing key "created"`,
			func(b *broker, _ *Config) func() {
				b.exchange("small", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
				b.must(b.ch.Publish("small", "", false, false, amqp.Publishing{}))
				return func() { b.take("small", 1) }
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			b.exchange("events", nil)
			cfg := byKey(b)
			fix := c.breaks(b, &cfg)
			s := start(t, cfg)
			poison := func() *event.Event { return newEvent(c.exchange, c.typ) }
			for _, o := range findsPoison(t, b, s, poison, sink.Destination, c.Reason) {
				f := o.Fault
				if f.Destination != c.accused || f.Whole == strings.Contains(c.accused, "routing key") || f.Text == "" {
					t.Errorf("accused %+v", f)
				}
			}
			fix()
			await.Until(t, "the fixed destination to take events", func() bool { return s.probe(poison(), false).State == sink.Confirmed })
		})
	}
}

// unchecked makes a message over which the broker closes the channel, with a 406 that names no
// event, of an event that says so. It stands for what no check foresees.
type unchecked struct{ sink.Encoder }

const killer = `{"of": "channels"}`

func (u unchecked) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	fault := u.Encoder.Encode(ev, rec)
	if string(ev.Headers) == killer {
		rec.Properties.Expiration = []byte("no number")
	}
	return fault
}

// withKillers has the sink make such messages.
func withKillers(b *broker, cfg Config) Config {
	plain, err := newPlain(&cfg)
	b.must(err)
	cfg.Encoder = unchecked{plain}
	return cfg
}

// A message that closes the channel with an exception that names no event has to be searched for.
func TestMessageThatKillsTheChannel(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	s := start(t, withKillers(b, b.config()))
	poison := func() *event.Event {
		ev := newEvent("k", "created")
		ev.Headers = []byte(killer)
		return ev
	}
	findsPoison(t, b, s, poison, sink.Transient, sink.BrokerException)

	// Tried again it goes apart, and costs no duplicates.
	good := s.sendWhile(events(200, "created"), func() {
		wantRejected(t, s.probe(poison(), true), sink.Transient, sink.BrokerException)
	})
	wantConfirmed(t, good)
	if n := b.depth("events"); n != 200 {
		t.Errorf("%d messages for 200 events", n)
	}
}

// Headers larger than a frame end the connection with a 501. The check that spares it is turned off
// here, to stand for a message that no check foresees.
func TestHeaderThatKillsTheConnection(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	cfg, lost := b.config(), atomic.Int64{}
	cfg.Connected = func(again bool) {
		if again {
			lost.Add(1)
		}
	}
	s := startUnchecked(t, cfg, 1<<30)
	poison := func() *event.Event {
		ev := newEvent("k", "created")
		ev.Headers = fmt.Appendf(nil, `{"h": %q}`, strings.Repeat("x", 140000))
		return ev
	}
	findsPoison(t, b, s, poison, sink.Transient, sink.BrokerException)
	if n := lost.Load(); n > 2 {
		t.Errorf("the shared connection was lost %d times to two events", n)
	}

	// Tried again it does not touch the shared connection.
	before := s.firstSession()
	wantRejected(t, s.probe(poison(), true), sink.Transient, sink.BrokerException)
	if s.firstSession() != before {
		t.Error("the shared connection was lost to a known killer")
	}
	// A probe that nobody suspected finds it on a private one, too.
	wantRejected(t, s.probe(poison(), false), sink.Transient, sink.BrokerException)
	wantConfirmed(t, s.send(events(10, "created")...))
	if n := b.depth("events"); n != 10 {
		t.Errorf("%d messages for 10 events", n)
	}
}

// A lane that is to use private connections waits for a broker that is away as any other does,
// after a call that has sent nothing; after two if the shared connection's loss is not known yet.
func TestBrokerAwayFromAPrivateConnection(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	proxy := startProxy(t, b.real.Addr())
	cfg := b.config()
	cfg.URLs = []string{b.through(proxy)}
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("k", "created")))
	s.lanes[0].privateEvents = 3
	wantConfirmed(t, s.send(events(2, "created")...))
	if s.lanes[0].privateEvents != 1 || s.lanes[0].link != s.links[0] || s.lanes[0].private != nil {
		t.Errorf("after two of three events %d are left", s.lanes[0].privateEvents)
	}
	proxy.Cut()
	if outcomes, err := s.try(newEvent("k", "created")); err == nil || outcomes[0].State != sink.Unsent {
		t.Errorf("nothing was sent: %s, %v", outcomes[0].State, err)
	}
	done := make(chan []sink.Outcome, 1)
	go func() {
		outcomes, _ := s.deliver(newEvent("k", "created"))
		done <- outcomes
	}()
	b.must(proxy.Restore())
	wantConfirmed(t, <-done)
}

// startUnchecked starts a sink that takes larger headers for sendable than a frame carries.
func startUnchecked(t *testing.T, cfg Config, header int64) *running {
	t.Helper()
	var s atomic.Pointer[Sink]
	ready := make(chan struct{})
	connected := cfg.Connected
	cfg.Connected = func(again bool) {
		if <-ready; connected != nil {
			connected(again)
		}
		s.Load().limits.header.Store(header)
	}
	r := start(t, cfg)
	s.Store(r.Sink)
	close(ready)
	return r
}

// A rejected event stops its key in its own exchange. In another one that key goes on, in its place
// among the others.
func TestKeyGoesOnElsewhere(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	cfg := b.config()
	cfg.Lanes, cfg.Exchange, cfg.RoutingKey = 1, tpl(t, "{type}"), tpl(t, "{aggregate}")
	s := start(t, cfg)
	refused, behind := newEvent("k", "missing"), newEvent("k", "missing")
	before, same, after := newEvent("other", "events"), newEvent("k", "events"), newEvent("other", "events")
	behind.Hash, same.Hash = refused.Hash, refused.Hash
	outcomes := s.send(before, refused, same, behind, after)
	wantRejected(t, outcomes[1], sink.Destination, sink.NoExchange)
	wantConfirmed(t, []sink.Outcome{outcomes[0], outcomes[2], outcomes[4]})
	if outcomes[3].State == sink.Confirmed {
		t.Error("behind the rejected one is confirmed")
	}
}

func TestRejectedUnsent(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	cfg := b.config()
	cfg.RoutingKey = tpl(t, "{type}.{key}")
	cfg.Columns = []string{"prio", "ttl", "corr", "mime"}
	cfg.Priority, cfg.Expiration, cfg.CorrelationID, cfg.ContentTypeColumn = "prio", "ttl", "corr", "mime"
	s := start(t, cfg)
	long := strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		spoil func(*event.Event)
		text  string
		sink.Reason
	}{
		"undecodable": {func(e *event.Event) { e.Fault = fmt.Errorf("the id is NULL") }, "the id is NULL", sink.Undecodable},
		"null key":    {func(e *event.Event) { e.Key = nil }, "routing key has a NULL", sink.NullInTemplate},
		"routing key": {func(e *event.Event) { e.Key = []byte(long) }, "routing key has 258 bytes, the protocol carries 255", sink.Invalid},
		"long key":    {func(e *event.Event) { e.Key = make([]byte, 1<<20) }, "routing key has 1048578 bytes", sink.Invalid},
		"message id":  {func(e *event.Event) { e.ID = []byte(long) }, "message id has 256 bytes, the protocol carries 255", sink.Invalid},
		"type":        {func(e *event.Event) { e.Type = []byte(long) }, "bytes, the protocol carries 255", sink.Invalid},
		"correlation": {func(e *event.Event) { e.Columns[2] = []byte(long) }, "correlation id has 256 bytes", sink.Invalid},
		"mime":        {func(e *event.Event) { e.Columns[3] = []byte(long) }, "content type has 256 bytes", sink.Invalid},
		"zeros":       {func(e *event.Event) { e.Columns[1] = []byte(strings.Repeat("0", 256)) }, "expiration has 256 bytes", sink.Invalid},
		"priority":    {func(e *event.Event) { e.Columns[0] = []byte("high") }, "priority is not a number", sink.Invalid},
		"expiration":  {func(e *event.Event) { e.Columns[1] = []byte("-1") }, "expiration is not a number", sink.Invalid},
		"expiration too long": {
			func(e *event.Event) { e.Columns[1] = []byte("4294967296") }, "expiration is not a number", sink.Invalid,
		},
		"headers no object": {func(e *event.Event) { e.Headers = []byte(`[1]`) }, "not a JSON object", sink.Invalid},
		"header name":       {func(e *event.Event) { e.Headers = fmt.Appendf(nil, `{%q: 1}`, long) }, "a header's name has 256 bytes", sink.Invalid},
		"headers too large": {
			func(e *event.Event) { e.Headers = fmt.Appendf(nil, `{"h": %q}`, strings.Repeat("x", 131072)) },
			"a frame carries 131064", sink.TooLarge,
		},
		"ten thousand headers": {func(e *event.Event) { e.Headers = manyHeaders(10000) }, "a frame carries 131064", sink.TooLarge},
		"body":                 {func(e *event.Event) { e.Payload = make([]byte, 128<<20+1) }, "the limit is 134217728 (RabbitMQ takes no more)", sink.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			ev := newEvent("k", "t")
			ev.Columns = make([][]byte, 4)
			c.spoil(ev)
			good := newEvent("k", "t")
			good.Columns = make([][]byte, 4)
			outcomes := s.send(ev, good)
			wantRejected(t, outcomes[0], sink.Permanent, c.Reason)
			if !strings.Contains(outcomes[0].Fault.Text, c.text) {
				t.Errorf("text %q, want %q", outcomes[0].Fault.Text, c.text)
			}
			wantConfirmed(t, outcomes[1:])
		})
	}
	if up, why := s.Up(); !up {
		t.Errorf("the connection suffered: %s", why)
	}
}

// What just fits is delivered: the limits are the protocol's, not smaller.
func TestJustWithinTheLimits(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	s := start(t, b.config())
	ev := newEvent("k", strings.Repeat("t", 255))
	ev.ID = []byte(strings.Repeat("i", 255))
	low, high := 130000, 131064
	for low < high { // the longest header that check lets through
		mid := (low + high + 1) / 2
		ev.Headers = fmt.Appendf(nil, `{"h": %q}`, strings.Repeat("x", mid))
		m := newMessage(&s.layout, &s.limits)
		if m.makeChecked(ev) == nil {
			low = mid
		} else {
			high = mid - 1
		}
	}
	ev.Headers = fmt.Appendf(nil, `{"h": %q}`, strings.Repeat("x", low))
	many := newEvent("k", "t")
	many.Headers = manyHeaders(8000)
	wantConfirmed(t, s.send(ev, many))
	got := b.take("events", 2)
	if n := len(got[0].Headers["h"].(string)); n != low {
		t.Errorf("header of %d bytes, want %d", n, low)
	}
	if n := len(got[1].Headers); n < 8000 {
		t.Errorf("%d headers, want 8000", n)
	}
	ev.Headers = fmt.Appendf(nil, `{"h": %q}`, strings.Repeat("x", low+1))
	wantRejected(t, s.send(ev)[0], sink.Permanent, sink.TooLarge)
	// RabbitMQ itself forgives the 8 bytes of a frame's own header, and no more.
	s = startUnchecked(t, b.config(), 131080)
	ev.Headers = fmt.Appendf(nil, `{"h": %q}`, strings.Repeat("x", low+9))
	wantRejected(t, s.send(ev)[0], sink.Transient, sink.BrokerException)
}

func manyHeaders(n int) []byte {
	doc := []byte("{")
	for i := range n {
		if i > 0 {
			doc = append(doc, ',')
		}
		doc = fmt.Appendf(doc, `"h%d":1`, i)
	}
	return append(doc, '}')
}

// invalidEvent is one that is rejected unsent.
func invalidEvent(exchange string) *event.Event {
	ev := newEvent(exchange, "t")
	ev.ID = []byte(strings.Repeat("x", 256))
	return ev
}

// In a pipelined call nothing of a key is sent after one of its events was rejected.
func TestPipelinedKeyStopsAtItsRejection(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	cfg := byKey(b)
	s := start(t, cfg)
	call := []*event.Event{newEvent("events", "t"), invalidEvent("events"), newEvent("events", "t"), newEvent("events", "t")}
	call[0].Hash, call[1].Hash, call[2].Hash = 7, 7, 7
	outcomes := s.send(call...)
	wantConfirmed(t, outcomes, 1, 2)
	wantRejected(t, outcomes[1], sink.Permanent, sink.Invalid)
	if outcomes[2].State != sink.Unsent {
		t.Errorf("after a rejected event of its key: %s", outcomes[2].State)
	}
	if n := b.depth("events"); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

// The same while all of them are in flight: what was behind the rejected event of its key was not
// taken, and is left to the caller.
func TestPipelinedKeyStopsAtItsRejectionInFlight(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	s := start(t, withKillers(b, byKey(b)))
	call := append(events(100, "t"), newEvent("events", "t"), newEvent("events", "t"), newEvent("events", "t"))
	for _, ev := range call[:100] {
		ev.Key, ev.Columns[0] = []byte("events"), []byte("events")
	}
	call[100].Headers = []byte(killer)
	call[100].Hash, call[101].Hash = 7, 7
	outcomes, err := s.try(call...)
	if err == nil || outcomes[100].State != sink.Unknown || outcomes[101].State != sink.Unknown {
		t.Errorf("one of many, and the one behind it: %s, %s, %v", outcomes[100].State, outcomes[101].State, err)
	}
	wantRejected(t, s.send(call[100])[0], sink.Transient, sink.BrokerException)
	for _, m := range b.take("events", b.depth("events")) {
		if m.MessageId == string(call[101].ID) {
			t.Error("it was sent")
		}
	}
}

// user makes a user with these rights in the test's virtual host, and returns the address to log in
// with.
func (b *broker) user(configure, write, read string, tags ...string) string {
	b.t.Helper()
	address := b.real.User(b.t, b.url, tags...)
	b.must(b.real.Permit(b.ctx, address, configure, write, read))
	return address
}

// A return and its ack that arrive after the returns were read, and before the outcomes are given,
// confirm nothing: the message is in no queue.
func TestAnswerBetweenReturnsAndOutcomesIsNotBelieved(t *testing.T) {
	b := newBroker(t)
	b.bare("bare", "topic")
	proxy := startProxy(t, b.real.Addr())
	cfg := byKey(b)
	cfg.URLs = []string{b.through(proxy)}
	s := start(t, cfg)
	// the channel is open
	wantRejected(t, s.send(newEvent("bare", "created"))[0], sink.Destination, sink.Unroutable)

	l := s.lanes[0]
	outcomes := make([]sink.Outcome, 1)
	l.beginCall([]*event.Event{newEvent("bare", "created")}, outcomes)
	ch, err := l.openChannel(b.ctx)
	b.must(err)
	proxy.Hold(netproxy.Down)
	l.sendRound(b.ctx, ch)
	l.readAnswers()
	returned, err := l.returnedEvents(ch)
	b.must(err)
	proxy.Release(netproxy.Down)
	<-l.sent[0].answer.Done()
	l.setOutcomes(ch, returned)
	if outcomes[0].State != sink.Unknown {
		t.Errorf("a message that was returned is %s", outcomes[0].State)
	}
	b.must(l.resolveRound(ch))
	wantRejected(t, outcomes[0], sink.Destination, sink.Unroutable)
	l.endCall()
}

// amqp091 keeps the last body that came back on a channel. So a channel with a large one is not
// used again, and one with a small one is.
func TestChannelThatKeepsALargeReturn(t *testing.T) {
	b := newBroker(t)
	b.bare("bare", "topic")
	s := start(t, byKey(b))
	l := s.lanes[0]
	publish := func(bytes int) (on *conn.Channel) {
		ev := newEvent("bare", "created")
		ev.Payload = []byte(`"` + strings.Repeat("x", bytes) + `"`)
		outcomes := make([]sink.Outcome, 1)
		l.beginCall([]*event.Event{ev}, outcomes)
		on, err := l.openChannel(b.ctx)
		b.must(err)
		b.must(l.runRounds(b.ctx))
		wantRejected(t, outcomes[0], sink.Destination, sink.Unroutable)
		l.endCall()
		return on
	}
	small, large, next := publish(100), publish(1<<20), publish(100)
	if large != small {
		t.Error("the channel with a small body was not used again")
	}
	if next == large {
		t.Error("the channel with a large body was used again")
	}
	await.Until(t, "it to be closed", large.AMQP.IsClosed)
}

// An event before a rejected one of its key is not behind it: when the channel was closed over
// another event, it is sent again in the same call.
func TestEventBeforeARejectedOneOfItsKeyIsSentAgain(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	proxy := startProxy(t, b.real.Addr())
	cfg := byKey(b)
	cfg.URLs = []string{b.through(proxy)}
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("events", "t"))) // the channel is open
	call := []*event.Event{newEvent("nowhere", "t"), newEvent("events", "t"), invalidEvent("events"), newEvent("events", "t")}
	call[1].Hash, call[2].Hash, call[3].Hash = 7, 7, 7
	proxy.Hold(netproxy.Down) // all is sent before the answer to the first comes
	sent := make(chan []sink.Outcome, 1)
	go func() { sent <- s.send(call...) }()
	b.must(proxy.WaitHeld(b.ctx, netproxy.Down, 1))
	proxy.Release(netproxy.Down)
	outcomes := <-sent
	wantRejected(t, outcomes[0], sink.Destination, sink.NoExchange)
	wantRejected(t, outcomes[2], sink.Permanent, sink.Invalid)
	if outcomes[1].State != sink.Confirmed || outcomes[3].State != sink.Unsent {
		t.Errorf("before the rejected event of the key %s, behind it %s", outcomes[1].State, outcomes[3].State)
	}
	if n := b.depth("events"); n < 2 {
		t.Error("the event before it is not there")
	}
}

// The last answer and the end of the caller's patience come together: nothing is in doubt, so the
// call has no error.
func TestCancelledWhenAllIsAnswered(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	s := start(t, b.config())
	l := s.lanes[0]
	outcomes := make([]sink.Outcome, 1)
	l.beginCall(events(1, "t"), outcomes)
	ch, err := l.openChannel(b.ctx)
	b.must(err)
	l.sendRound(b.ctx, ch)
	<-l.sent[0].answer.Done()
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	b.must(l.concludeRound(ctx, ch, conn.Cancelled, l.resolveRound(ch)))
	wantConfirmed(t, outcomes)
	l.endCall()
	if wantConfirmed(t, s.send(newEvent("k", "t"))); !ch.Usable() {
		t.Error("a channel on which all is answered was given up")
	}
}

// amqp091 may drop a return when the process was suspended while it handed it on. The acked return
// would then count as confirmed, so after such a stop nothing on the connection is believed: the
// event is sent again on the next one.
func TestNothingIsBelievedAfterTheProcessStoodStill(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	s := start(t, b.config())
	wantConfirmed(t, s.send(events(1, "created")...))
	former := s.firstSession()
	former.Wire.Frozen.Store(true)
	all := events(2, "created")
	for _, ev := range all {
		ev.Hash = 0 // lane 0, whose connection it is
	}
	outcomes := make([]sink.Outcome, len(all))
	if err := s.Publish(b.ctx, 0, all, outcomes); err == nil {
		t.Fatal("answers of a suspended process are believed")
	}
	for i, o := range outcomes {
		if o.State != sink.Unknown {
			t.Errorf("event %d is %s", i, o.State)
		}
	}
	// An answer that was missed is not a late one.
	await.Until(t, "another connection", func() bool { return s.firstSession() != former })
	l := s.lanes[0]
	l.beginCall(all, outcomes)
	ch, err := l.openChannel(b.ctx)
	b.must(err)
	l.sendRound(b.ctx, ch)
	ch.Session.Wire.Frozen.Store(true)
	if err := l.concludeRound(b.ctx, ch, conn.Late, l.resolveRound(ch)); err == nil || outcomes[0].State != sink.Unknown {
		t.Errorf("late, and suspended: %s, %v", outcomes[0].State, err)
	}
	l.endCall()
	clear(outcomes)
	if err := s.Publish(b.ctx, 0, all, outcomes); err != nil || outcomes[0].State != sink.Confirmed {
		t.Errorf("on a new connection: %v, %v", outcomes, err)
	}
}
