package rabbit

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap/zaptest"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

func TestMain(m *testing.M) { servers.Main(m) }

// broker is a real broker, with a test's own connection to inspect it.
type broker struct {
	t    testing.TB
	ctx  context.Context
	real *rabbitserver.Rabbit
	url  string
	conn *amqp.Connection
	ch   *amqp.Channel
	// declared, and deleted with the test: what all tests share is the virtual host
	exchanges []string
	queues    []string
}

// newBroker is the shared one, which no test reconfigures, in a virtual host of this package's.
func newBroker(t testing.TB) *broker {
	t.Helper()
	return connect(t, servers.SharedRabbitMQ(t), servers.SharedVHost(t))
}

// parallelBroker is the shared one in a virtual host of this test's, which runs next to others: for
// tests that mostly wait.
func parallelBroker(t *testing.T) *broker {
	t.Helper()
	t.Parallel()
	real := servers.SharedRabbitMQ(t)
	return connect(t, real, real.VHost(t))
}

// connect inspects one virtual host of any broker.
func connect(t testing.TB, real *rabbitserver.Rabbit, url string) *broker {
	t.Helper()
	b := &broker{t: t, ctx: await.Context(t), real: real, url: url}
	conn, err := amqp.Dial(b.url)
	b.must(err)
	b.conn = conn
	t.Cleanup(func() {
		defer conn.CloseDeadline(time.Now().Add(time.Second))
		if conn.IsClosed() {
			return
		}
		ch := b.channel()
		for _, name := range b.queues {
			_, err := ch.QueueDelete(name, false, false, false)
			b.must(err)
		}
		for _, name := range b.exchanges {
			b.must(ch.ExchangeDelete(name, false, false))
		}
	})
	b.ch = b.channel()
	return b
}

func (b *broker) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *broker) channel() *amqp.Channel {
	b.t.Helper()
	ch, err := b.conn.Channel()
	b.must(err)
	return ch
}

// exchange declares a topic exchange with a queue of the same name bound to everything.
func (b *broker) exchange(name string, args amqp.Table) {
	b.t.Helper()
	b.bare(name, "topic")
	b.queue(name, args)
	b.must(b.ch.QueueBind(name, "#", name, false, nil))
}

// bare declares an exchange with nothing behind it.
func (b *broker) bare(name, kind string) {
	b.t.Helper()
	b.exchanges = append(b.exchanges, name)
	b.must(b.ch.ExchangeDeclare(name, kind, true, false, false, false, nil))
}

func (b *broker) queue(name string, args amqp.Table) {
	b.t.Helper()
	b.queues = append(b.queues, name)
	_, err := b.ch.QueueDeclare(name, true, false, false, false, args)
	b.must(err)
}

// take removes n messages from a queue, in order.
func (b *broker) take(queue string, n int) []amqp.Delivery {
	b.t.Helper()
	ch := b.channel()
	defer ch.Close()
	msgs, err := ch.Consume(queue, "", true, false, false, false, nil)
	b.must(err)
	var got []amqp.Delivery
	for len(got) < n {
		m, ok := <-msgs
		if !ok {
			b.t.Fatalf("queue %s: %d of %d messages, then closed", queue, len(got), n)
		}
		got = append(got, m)
	}
	return got
}

// depth is the number of messages in a queue.
func (b *broker) depth(queue string) int {
	b.t.Helper()
	q, err := b.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	b.must(err)
	return q.Messages
}

// config publishes every event to the exchange "events" with its type as routing key.
func (b *broker) config() Config {
	return Config{
		Dialer:   conn.Dialer{URLs: []string{b.url}, ConfirmTimeout: 20 * time.Second},
		Exchange: tpl(b.t, "events"), RoutingKey: tpl(b.t, "{type}"),
		Connections: 1, Lanes: 4, Log: zaptest.NewLogger(b.t),
	}
}

func tpl(t testing.TB, s string) sink.Template {
	t.Helper()
	parsed, err := sink.ParseTemplate(s)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// running is a sink with its Run, which ends with the test.
type running struct {
	*Sink
	t    testing.TB
	stop context.CancelFunc
	done chan error
}

func start(t testing.TB, cfg Config) *running {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Lead(true)
	return run(t, s)
}

// run runs a sink until the test ends.
func run(t testing.TB, s *Sink) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Sink: s, t: t, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- s.Run(ctx) }()
	t.Cleanup(r.end)
	return r
}

// end stops Run and waits for it.
func (r *running) end() {
	r.t.Helper()
	r.stop()
	err := <-r.done
	r.done <- err
	var stop *event.Stop
	if err != nil && !errors.As(err, &stop) {
		r.t.Errorf("Run: %v", err)
	}
}

// send publishes on lane 0 and wants no error. It returns after one, too: tests send in goroutines
// of their own, and whoever waits for one that has ended waits for ever.
func (r *running) send(events ...*event.Event) []sink.Outcome {
	r.t.Helper()
	outcomes, err := r.try(events...)
	if err != nil {
		r.t.Errorf("publish: %v", err)
	}
	return outcomes
}

func (r *running) try(events ...*event.Event) ([]sink.Outcome, error) {
	r.t.Helper()
	outcomes := make([]sink.Outcome, len(events))
	err := r.Publish(context.Background(), 0, events, outcomes)
	return outcomes, err
}

// deliver publishes on lane 0 until every event has an outcome, as the order machine does: after an
// error what has none is offered again, one event at first and twice as many after each confirm. It
// returns how many calls that took.
func (r *running) deliver(events ...*event.Event) (outcomes []sink.Outcome, calls int) {
	r.t.Helper()
	outcomes = make([]sink.Outcome, len(events))
	for limit := len(events); ; calls++ {
		var call []*event.Event
		var at []int
		for i, o := range outcomes {
			if len(at) < limit && (o.State == sink.Unknown || o.State == sink.Unsent) {
				call, at = append(call, events[i]), append(at, i)
			}
		}
		if len(call) == 0 {
			return outcomes, calls
		}
		got, err := r.try(call...)
		confirmed := false
		for i, o := range got {
			outcomes[at[i]] = o
			confirmed = confirmed || o.State == sink.Confirmed
		}
		switch {
		case err != nil:
			limit = 1
		case confirmed:
			limit *= 2
		}
	}
}

// probe probes with an event, and wants no error.
func (r *running) probe(ev *event.Event, suspect bool) sink.Outcome {
	r.t.Helper()
	out, err := r.Probe(context.Background(), ev, suspect)
	if err != nil {
		r.t.Errorf("probe: %v", err)
	}
	return out
}

// sendWhile publishes events on lane 0, one a call, until do has returned, and all of them once.
func (r *running) sendWhile(events []*event.Event, do func()) (outcomes []sink.Outcome) {
	r.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	for i, ev := range events {
		outcomes = append(outcomes, r.send(ev)...)
		if i == len(events)/2 {
			<-done
		}
	}
	return outcomes
}

var lastPosition atomic.Uint64

// newEvent makes an event with a position of its own.
func newEvent(key, typ string) *event.Event {
	n := lastPosition.Add(1)
	return &event.Event{
		Position: event.Position{Commit: pglogrepl.LSN(n << 8)}, CommitTime: time.Now(), Time: time.Now(),
		ID: fmt.Appendf(nil, "id-%d", n), Aggregate: []byte("order"), Key: []byte(key), Type: []byte(typ),
		Payload: fmt.Appendf(nil, `{"n":%d}`, n), Ordered: true, Hash: n, Columns: [][]byte{[]byte(key)},
	}
}

func events(n int, typ string) []*event.Event {
	var all []*event.Event
	for i := range n {
		all = append(all, newEvent(fmt.Sprint("key-", i), typ))
	}
	return all
}

// wantConfirmed wants every outcome confirmed but those at the places given.
func wantConfirmed(t testing.TB, outcomes []sink.Outcome, but ...int) {
	t.Helper()
	exempt := map[int]bool{}
	for _, i := range but {
		exempt[i] = true
	}
	for i, o := range outcomes {
		if o.State != sink.Confirmed && !exempt[i] {
			t.Fatalf("event %d of %d: %s %v", i, len(outcomes), o.State, o.Fault)
		}
	}
}

// wantRejected wants one outcome rejected for a reason and class.
func wantRejected(t testing.TB, o sink.Outcome, class sink.Class, reason sink.Reason) {
	t.Helper()
	if o.State != sink.Rejected || o.Fault == nil || o.Fault.Class != class || o.Fault.Reason != reason {
		t.Fatalf("got %s %+v, want rejected, %s, %s", o.State, o.Fault, class, reason)
	}
}

// through is the broker's address behind a proxy.
func (b *broker) through(p *netproxy.Proxy) string {
	b.t.Helper()
	return through(b.t, p, b.url)
}

func through(t testing.TB, p *netproxy.Proxy, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.Addr()
	return u.String()
}

// wantFinding wants a finding of this name and result, whose texts contain these.
func wantFinding(t testing.TB, found []sink.Finding, name string, ok bool, detail, fix string) {
	t.Helper()
	for _, f := range found {
		if f.Name == name && f.OK == ok && strings.Contains(f.Detail, detail) && strings.Contains(f.Fix, fix) {
			return
		}
	}
	t.Errorf("no finding %q, ok %v, %q, %q among %+v", name, ok, detail, fix, found)
}

func startProxy(t testing.TB, target string) *netproxy.Proxy {
	t.Helper()
	p, err := netproxy.Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// firstSession is the first connection, once there is one.
func (r *running) firstSession() *conn.Session {
	r.t.Helper()
	sess, err := r.links[0].awaitSession(await.Context(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	return sess
}
