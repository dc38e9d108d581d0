package rabbit_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/rabbit"
)

// The topology may be declared again and again. One that the broker has otherwise is refused with
// all that differs, by Run, too, and stays as it is.
func TestDeclare(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	r.must(c.Declare(r.ctx))

	_, err := r.ch.QueueDelete("mailer.retry.1s", false, false, false)
	r.must(err)
	_, err = r.ch.QueueDeclare("mailer.retry.1s", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-message-ttl": int64(7)})
	r.must(err)
	r.must(r.ch.ExchangeDelete("mailer.return", false, false))
	r.must(r.ch.ExchangeDeclare("mailer.return", "topic", true, false, false, false, nil))
	r.rabbit.Shared = true
	want := regexp.MustCompile(`^declare the topology: the broker has it otherwise:
  exchange "mailer.return": .* arg 'type' .* received 'direct' but current is 'topic'
  queue "mailer": .* arg 'x-single-active-consumer' .*
  queue "mailer.retry.1s": .* arg 'x-dead-letter-exchange' .*'mailer.return'.*
Restore the configuration of the service, or delete what differs when it is empty and nobody uses it: it is then declared again$`)
	c = r.consumer()
	for _, err := range []error{c.Declare(r.ctx), c.Run(r.ctx)} {
		if err == nil || !want.MatchString(err.Error()) {
			t.Errorf("got:\n%v\nwant:\n%s", err, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inbox.Concurrency = 3
	in, err := inbox.New(r.inbox)
	r.must(err)
	long := strings.Repeat("x", 256)
	for want, cfg := range map[string]rabbit.Config{
		"URL is not":         {URL: "http://user:secret@host/"},
		"Prefetch is 2":      {URL: r.url, Prefetch: 2},
		"Prefetch is 65536":  {URL: r.url, Prefetch: 65536},
		"Bindings is empty":  {URL: r.url},
		"up to 255 bytes":    {URL: r.url, DeadLetterExchange: long},
		"not amq. in front":  {URL: r.url, DeadLetterExchange: "amq.direct"},
		"messages come back": {URL: r.url, DeadLetterExchange: "mailer.return"},
		"Bindings has":       {URL: r.url, Bindings: []rabbit.Binding{{Key: "#"}}},
	} {
		if _, err := rabbit.New(in, cfg); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := rabbit.New(nil, rabbit.Config{URL: r.url}); err == nil {
		t.Error("no inbox, and no error")
	}
	if _, err := rabbit.New(in, rabbit.Config{URL: r.url, BoundElsewhere: true}); err != nil {
		t.Error(err)
	}
	r.inbox.Service, r.inbox.Registerer = "amq.mailer", prometheus.NewRegistry()
	in, err = inbox.New(r.inbox)
	r.must(err)
	if _, err := rabbit.New(in, r.rabbit); err == nil || !strings.Contains(err.Error(), "amq.mailer") {
		t.Errorf("a reserved name: %v", err)
	}
}
