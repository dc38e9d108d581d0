// Checks of the section sink: one broker, its addresses, and the columns its templates need.

package config

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
)

const wantSink = "want exactly one of rabbitmq, kafka, stdout"

// validateSink keeps the one sink that is named and drops the others.
func (l *loader) validateSink() {
	switch len(l.sinks) {
	case 0:
		if !l.wrongSink {
			l.fault(document.Place{}, "sink", "none is configured; "+wantSink)
		}
	case 1:
	default:
		var names []string
		for _, m := range l.sinks {
			_, name, _ := cutLast(m.path)
			names = append(names, name)
		}
		l.fault(l.sinks[1].where, "sink", strings.Join(names, " and ")+" are configured; "+wantSink)
	}
	named := map[string]bool{}
	for _, m := range l.sinks {
		named[m.path] = true
	}
	l.validateCompat(named)
	if named["sink.rabbitmq"] {
		l.validateRabbitMQ()
	} else {
		l.cfg.Sink.RabbitMQ = nil
	}
	if named["sink.kafka"] {
		l.validateKafka()
	} else {
		l.cfg.Sink.Kafka = nil
	}
	if !named["sink.stdout"] {
		l.cfg.Sink.Stdout = nil
	} else if len(named) == 1 && len(l.cfg.Outbox.Headers) > 0 {
		l.faultAt("outbox.headers", errors.New("has no effect with sink.stdout, which has no headers to put these columns in; leave it out"))
	}
}

func (l *loader) validateRabbitMQ() {
	r := l.cfg.Sink.RabbitMQ
	const urls = "sink.rabbitmq.url"
	if len(r.URLs) == 0 && len(l.faults) == 0 {
		l.faultAt(urls, errors.New("names no broker"))
	}
	_, user := l.written["sink.rabbitmq.username"]
	_, password := l.written["sink.rabbitmq.password"]
	plaintext, users := false, 0
	for _, secret := range r.URLs {
		value, err := secret.Read()
		if err != nil {
			l.faultAt(urls, err)
			continue
		}
		u, err := parseAMQP(value)
		if err != nil {
			l.faultAt(urls, err)
			continue
		}
		plaintext = plaintext || u.Scheme == "amqp"
		if u.User != nil {
			users++
		}
	}
	r.userInURL = users > 0
	switch {
	case users > 0 && (user || password):
		l.faultAt(urls, errors.New("has a user in the address, and username or password is given too; one of the two"))
	case users > 0 && users < len(r.URLs):
		l.faultAt(urls, errors.New("has a user in some addresses and not in others; in all, or none and username and password"))
	}
	if plaintext {
		l.withoutTLS("sink.rabbitmq.tls.", &r.TLS, "has no effect on an amqp:// address; write amqps://")
	}
	l.validateKey("sink.rabbitmq.tls.key", &r.TLS)
	l.validateTemplate("sink.rabbitmq.exchange", r.Exchange)
	l.validateTemplate("sink.rabbitmq.routing_key", r.RoutingKey)
	switch exchange, constant := r.Exchange.Constant(); {
	case !r.Declare:
	case !constant:
		l.faultAt("sink.rabbitmq.declare", fmt.Errorf("has no effect on exchange %q, which each event names; declare those exchanges at the broker", r.Exchange))
	case exchange == "":
		l.faultAt("sink.rabbitmq.declare", errors.New("has no effect on the default exchange, which is always there; leave it out"))
	}
}

// parseAMQP never quotes the address in its error: a password with a / or @ in it ends up anywhere.
func parseAMQP(value string) (*url.URL, error) {
	u, err := url.Parse(value)
	switch {
	case err != nil:
		return nil, errors.New("cannot be parsed as amqp://user:password@host:port/vhost (in a password / ? # @ : % are written %2F %3F %23 %40 %3A %25)")
	case u.Scheme == "":
		return nil, errors.New("has no amqp:// or amqps:// in front, want amqp://host:port/vhost")
	case u.Scheme != "amqp" && u.Scheme != "amqps":
		return nil, fmt.Errorf("starts with %q, want amqp:// or amqps://", u.Scheme+":")
	case u.Hostname() == "":
		return nil, errors.New("has no host, want amqp://host:port/vhost")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("has port %s, want 1 to 65535", port)
		}
	}
	if _, err := amqp.ParseURI(value); err != nil {
		return nil, errors.New("cannot be used: it has a space in it (written %20), or a parameter behind the ? that is no number")
	}
	return u, nil
}
