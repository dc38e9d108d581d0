package rabbit

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

// accusation is whom an exception concerns.
type accusation uint8

const (
	nobody        accusation = iota // a loss: no close frame, our own close, or an operator's
	channelOne                      // the channel was closed over one of its messages
	connectionOne                   // the connection was closed over one of its messages
)

// accuses reads the end of a channel or connection. AMQP 0-9-1 calls the channel's codes soft
// errors; 320 (connection-forced) is an operator or a node that stops.
func accuses(ex *amqp.Error) accusation {
	if ex == nil || !ex.Server || ex.Code == amqp.ConnectionForced {
		return nobody
	}
	switch ex.Code {
	case amqp.ContentTooLarge, amqp.NoRoute, amqp.NoConsumers, amqp.AccessRefused, amqp.NotFound, amqp.ResourceLocked, amqp.PreconditionFailed:
		return channelOne
	}
	return connectionOne
}

// RabbitMQ's words for a message over max_message_size: "message size 70000 is larger than
// configured max size 65536".
var sizeWords = regexp.MustCompile(`message size (\d+) is larger than (?:the )?(?:configured )?max(?:imum)? size:? (\d+)`)

// sizeLimit is the limit that a 406 names; 0 when it is about something else.
func sizeLimit(ex *amqp.Error) int {
	found := sizeWords.FindStringSubmatch(ex.Reason)
	if found == nil {
		return 0
	}
	limit, err := strconv.Atoi(found[2])
	if err != nil {
		return 0
	}
	return limit
}

// names reports whether the exception's text names the exchange; RabbitMQ calls the default one
// amq.default.
func names(ex *amqp.Error, exchange string) bool {
	if exchange == "" {
		exchange = "amq.default"
	}
	return strings.Contains(ex.Reason, "exchange '"+exchange+"'")
}

// topicRight reports whether a 403 is about the right to one routing key of a topic exchange rather
// than to the exchange.
func topicRight(ex *amqp.Error) bool {
	return ex.Code == amqp.AccessRefused && strings.Contains(ex.Reason, "access to topic '")
}

// refusal is the fault of an event over which a channel or connection was closed: of the message
// that was made last, with a body of so many bytes.
func refusal(m *message.Message, ex *amqp.Error, size int) *sink.Fault {
	exchangeName, routingKey := m.Layout.Shown(m.Copy, m.Exchange, m.RoutingKey)
	f := &sink.Fault{Class: sink.Destination, Whole: true, Destination: message.Exchange(exchangeName), Words: discreet(m, brokerWords(ex), exchangeName, routingKey)}
	switch {
	case ex.Code == amqp.NotFound:
		f.Reason = sink.NoExchange
	case topicRight(ex):
		f.Reason, f.Whole, f.Destination = sink.NotPermitted, false, message.Pair(exchangeName, routingKey)
	case ex.Code == amqp.AccessRefused:
		f.Reason = sink.NotPermitted
	case ex.Code == amqp.PreconditionFailed && sizeLimit(ex) > 0:
		return message.TooLarge(message.Pair(exchangeName, routingKey), size, sizeLimit(ex))
	case ex.Code == amqp.PreconditionFailed && names(ex, m.Exchange):
		// its type is a plugin's, which is not there any more
		f.Reason = sink.BrokerException
	default:
		// Whatever could be known before sending has been checked, so this is new: it may be the
		// broker's passing trouble.
		f.Class, f.Reason, f.Whole = sink.Transient, sink.BrokerException, false
		f.Destination = message.Pair(exchangeName, routingKey)
	}
	return f
}

// maxWords is how long the text of an exception is at the most: the broker cuts off the rest.
const maxWords = 250

// discreet is what the broker says with the exchange and the routing key as they are shown. Of a
// text that may have been cut off nothing quoted is shown: the end of a name may be missing.
func discreet(m *message.Message, words, exchangeName, routingKey string) string {
	if exchangeName == m.Exchange && routingKey == m.RoutingKey {
		return words
	}
	if before, _, quotes := strings.Cut(words, "'"); quotes && len(words) >= maxWords {
		return before + "'…"
	}
	return strings.NewReplacer("'"+m.Exchange+"'", "'"+exchangeName+"'", "'"+m.RoutingKey+"'", "'"+routingKey+"'").Replace(words)
}

// brokerWords are the code and text of an exception.
func brokerWords(ex *amqp.Error) string {
	return fmt.Sprintf("%d %s", ex.Code, ex.Reason)
}
