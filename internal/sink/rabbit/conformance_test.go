package rabbit

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

func TestConformance(t *testing.T) {
	// which is for the whole broker: TestConformanceBlocked
	all := func(kind sinktest.Kind) bool { return kind != sinktest.Blocked }
	b := parallelBroker(t)
	sinktest.Run(t, all, func(t *testing.T) sinktest.Broker { return openConformance(t, connect(t, b.real, b.url)) })
}

// conformance is the real broker behind a proxy, with an exchange for each way in which a
// destination fails. All that is fixed ends up in one queue, which a consumer empties.
type conformance struct {
	*broker
	sink  *running
	proxy *netproxy.Proxy
	block func(on bool) // of a broker of this process
	n     uint64

	mu  sync.Mutex
	got []sinktest.Delivery
}

// exchangeOf is where the events of a destination's kind go; each but the full one is bound to the
// queue by itself.
var exchangeOf = map[sinktest.Kind]string{
	sinktest.DestinationMissing:   "missing",
	sinktest.DestinationForbidden: "forbidden",
	sinktest.DestinationRefusing:  "refusing",
	sinktest.DestinationFull:      "full",
}

func openConformance(t *testing.T, b *broker) *conformance {
	c := &conformance{broker: b}
	c.exchange("events", nil)
	for _, name := range exchangeOf {
		c.bind(name)
	}
	c.queue("full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	c.must(c.ch.Publish("", "full", false, false, amqp.Publishing{}))
	c.collect()

	c.proxy = startProxy(t, c.real.Addr())
	cfg := c.config()
	cfg.URLs = []string{c.through(c.proxy)}
	cfg.Exchange, cfg.Columns = tpl(t, "{column:exchange}"), []string{"exchange"}
	cfg.Connections, cfg.Lanes = 2, 8
	cfg.ConfirmTimeout = time.Hour // what is left waiting shows that nothing else ends it
	c.sink = start(t, cfg)
	return c
}

// bind declares an exchange whose messages end up in the queue.
func (c *conformance) bind(exchange string) {
	c.bare(exchange, "topic")
	c.must(c.ch.QueueBind("events", "#", exchange, false, nil))
}

// collect consumes the queue.
func (c *conformance) collect() {
	consumer := c.channel()
	msgs, err := consumer.Consume("events", "collector", true, false, false, false, nil)
	c.must(err)
	done := make(chan struct{})
	c.t.Cleanup(func() {
		c.must(consumer.Cancel("collector", false))
		<-done
	})
	go func() {
		defer close(done)
		for m := range msgs {
			text, _ := m.Headers[sink.HeaderPosition].(string)
			pos, err := event.ParsePosition(text)
			if err != nil {
				c.t.Errorf("message without a position: %v", err)
				continue
			}
			key, _ := m.Headers[headerKey].(string)
			c.mu.Lock()
			c.got = append(c.got, sinktest.Delivery{Position: pos, ID: m.MessageId, Key: key})
			c.mu.Unlock()
		}
	}()
}

func (c *conformance) Delivered() []sinktest.Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[:len(c.got):len(c.got)]
}

func (c *conformance) Idempotent() bool { return false }

func (c *conformance) Sink() sink.Sink { return c.sink }

func (c *conformance) Stop() error {
	c.sink.stop()
	err := <-c.sink.done
	c.sink.done <- err
	return err
}

func (c *conformance) Event(kind sinktest.Kind, key string) *event.Event {
	c.n++
	ev := sinktest.NewEvent(c.n, key)
	ev.Columns = [][]byte{[]byte("events")}
	if exchange, ok := exchangeOf[kind]; ok {
		ev.Columns[0] = []byte(exchange)
	}
	switch kind {
	case sinktest.EventTooLarge:
		ev.Headers = []byte(`{"h": "` + strings.Repeat("x", 140000) + `"}`)
	case sinktest.EventInvalid:
		ev.Headers = []byte(`["no object"]`)
	case sinktest.EventUndecodable:
		ev.Fault = errors.New("the id is NULL")
	default:
	}
	return ev
}

func (c *conformance) Break(kind sinktest.Kind) { c.turn(kind, true) }
func (c *conformance) Fix(kind sinktest.Kind)   { c.turn(kind, false) }

func (c *conformance) turn(kind sinktest.Kind, broken bool) {
	exchange := exchangeOf[kind]
	switch kind {
	case sinktest.Unavailable:
		c.cut(broken)
	case sinktest.Stalled:
		if broken {
			c.proxy.Stall()
		} else {
			c.must(c.proxy.Restore())
		}
	case sinktest.Blocked:
		c.block(broken)
	case sinktest.AnswersLost:
		if broken {
			c.proxy.Hold(netproxy.Down)
		} else {
			c.cut(true)
			c.proxy.Release(netproxy.Down)
			c.cut(false)
		}
	case sinktest.DestinationMissing:
		if broken {
			c.must(c.ch.ExchangeDelete(exchange, false, false))
		} else {
			c.bind(exchange)
		}
	case sinktest.DestinationRefusing:
		if broken {
			c.must(c.ch.QueueUnbind("events", "#", exchange, nil))
		} else {
			c.bind(exchange)
		}
	case sinktest.DestinationFull:
		if broken {
			c.must(c.ch.QueueUnbind("events", "#", exchange, nil))
			c.must(c.ch.QueueBind("full", "#", exchange, false, nil))
		} else {
			c.must(c.ch.QueueUnbind("full", "#", exchange, nil))
			c.bind(exchange)
		}
	case sinktest.DestinationForbidden:
		if broken {
			c.must(c.real.AllowWrite(c.ctx, c.url, "^(?!forbidden$).*"))
			c.t.Cleanup(func() { c.must(c.real.AllowWrite(c.ctx, c.url, ".*")) })
		} else {
			c.must(c.real.AllowWrite(c.ctx, c.url, ".*"))
		}
	default: // the fault is the event's
	}
}

func (c *conformance) cut(on bool) {
	if on {
		c.proxy.Cut()
		return
	}
	c.must(c.proxy.Restore())
}
