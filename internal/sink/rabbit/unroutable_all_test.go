//go:build testall

package rabbit

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Types of plugins that answer NO_ROUTE for what they take: keeping_exchange.erl stands for them.
// Each event arrives once, as no repeat of it is sent, and check names the key.
func TestExchangesThatReturnWhatTheyTook(t *testing.T) {
	real := servers.OwnRabbitMQ(t)
	b := connect(t, real, real.URL())
	b.must(real.AddKeepers(b.ctx))
	for kind, headers := range map[string]string{"x-delayed-message": `{"x-delay": 500}`, "x-message-deduplication": `{"x-deduplication-header": "a"}`} {
		t.Run(kind, func(t *testing.T) {
			b.bare(kind, kind)
			b.queue(kind, nil)
			b.must(b.ch.QueueBind(kind, "#", kind, false, nil))
			cfg := byKey(b)
			cfg.AllowHeaders = []string{"x-delay", "x-deduplication-header"}
			ev := newEvent(kind, "reminder")
			ev.Headers = []byte(headers)
			if kind == "x-message-deduplication" { // an earlier attempt was taken
				b.must(b.ch.Publish(kind, "", false, false, amqp.Publishing{MessageId: string(ev.ID), Headers: amqp.Table{"x-deduplication-header": "a"}}))
			}
			pausing := start(t, cfg)
			cfg.Unroutable = Unroutable{{kind, true}}
			s := start(t, cfg)
			wantConfirmed(t, s.send(ev))
			if n := s.Status().Ignored; n != 1 {
				t.Errorf("%d returns are ignored, want 1", n)
			}
			if got := b.take(kind, 1)[0]; got.MessageId != string(ev.ID) {
				t.Errorf("%s has arrived, want %s", got.MessageId, ev.ID)
			}
			wantRejected(t, pausing.send(ev)[0], sink.Destination, sink.Unroutable)

			cfg.Exchange = tpl(t, kind)
			wantFinding(t, Check(b.ctx, cfg), `exchange "`+kind+`"`, true, kind, "")
			cfg.Unroutable = nil
			wantFinding(t, Check(b.ctx, cfg), `exchange "`+kind+`"`, false, kind, "sink.rabbitmq.unroutable: ignore")
		})
	}
}
