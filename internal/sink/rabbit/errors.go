// What the broker's errors mean: the fault that an exception gives an event, and the fix of a
// connection that is refused.

package rabbit

import (
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// exceptionScope says what the broker has closed because of a message: nothing, the channel, or the
// connection.
type exceptionScope uint8

const (
	// no message is the cause: there is no close frame, or we or an operator have closed it
	noMessage    exceptionScope = iota
	channelScope                // the channel was closed because of one of its messages
	// the connection was closed because of one of its messages
	connectionScope
)

// classifyException classifies the end of a channel or connection. AMQP 0-9-1 calls the channel's
// codes soft errors; 320 (connection-forced) is an operator or a node that stops.
func classifyException(ex *amqp.Error) exceptionScope {
	if ex == nil || !ex.Server || ex.Code == amqp.ConnectionForced || channelLimit(ex) > 0 {
		return noMessage
	}
	switch ex.Code {
	case amqp.ContentTooLarge, amqp.NoRoute, amqp.NoConsumers, amqp.AccessRefused, amqp.NotFound, amqp.ResourceLocked, amqp.PreconditionFailed:
		return channelScope
	}
	return connectionScope
}

// scopeOn is classifyException for what has ended on a session.
func scopeOn(sess *conn.Session, ex *amqp.Error) exceptionScope {
	scope := classifyException(ex)
	if scope != noMessage && sess.AccusesLogin(ex) {
		return noMessage
	}
	return scope
}

// sizeText is RabbitMQ's text for a message over max_message_size: "message size 70000 is larger
// than configured max size 65536".
var sizeText = lazy.Regexp(`message size \d+ is larger than (?:the )?(?:configured )?max(?:imum)? size:? (\d+)`)

// sizeLimit returns the limit that a 406 names, or 0 when it is about something else.
func sizeLimit(ex *amqp.Error) int { return foundNumber(sizeText().FindStringSubmatch(ex.Reason)) }

// namesExchange reports whether an exception's text names the exchange. RabbitMQ calls the default
// exchange amq.default.
func namesExchange(ex *amqp.Error, exchange string) bool {
	if exchange == "" {
		exchange = "amq.default"
	}
	return strings.Contains(ex.Reason, "exchange '"+exchange+"'")
}

// isTopicRight reports whether a 403 is about the right to one routing key of a topic exchange, and
// not to the exchange as a whole.
func isTopicRight(ex *amqp.Error) bool {
	return ex.Code == amqp.AccessRefused && strings.Contains(ex.Reason, "access to topic '")
}

// isTokenExpired reports whether a 403 is about the OAuth 2 token: "access to exchange 'x' in vhost
// '/' refused for user 'u', backend rabbit_auth_backend_oauth2 returned an error: …expired…". The
// text about a right that the token does not give ends after the user. The broker cuts off a text
// at 255 bytes, as with a long exchange name, and ends it with dots.
func isTokenExpired(ex *amqp.Error) bool {
	const backend = ", backend rabbit_auth_backend_oauth2 "
	if strings.Contains(ex.Reason, "'"+backend) {
		return true
	}
	text, cut := strings.CutSuffix(ex.Reason, "...")
	at := strings.LastIndex(text, "', ")
	return cut && at >= 0 && strings.HasPrefix(backend, text[at+1:])
}

// faultOfException makes the fault of an event over which the broker closed a channel or
// connection. m has the message that was made last, and size is that of its body.
func faultOfException(m *message, ex *amqp.Error, size int) *sink.Fault {
	exchangeName, routingKey := m.layout.shownNames(m.isCopy, m.exchange, m.routingKey)
	f := &sink.Fault{Class: sink.Destination, Whole: true, Destination: exchangeText(exchangeName), Text: hideNames(m, brokerText(ex), exchangeName, routingKey)}
	switch {
	case ex.Code == amqp.NotFound:
		f.Reason = sink.NoExchange
	case isTopicRight(ex):
		f.Reason, f.Whole, f.Destination = sink.NotPermitted, false, pairText(exchangeName, routingKey)
	case ex.Code == amqp.AccessRefused:
		f.Reason = sink.NotPermitted
	case ex.Code == amqp.PreconditionFailed && sizeLimit(ex) > 0:
		return tooLarge(pairText(exchangeName, routingKey), size, sizeLimit(ex), time.Now().Unix())
	case ex.Code == amqp.PreconditionFailed && namesExchange(ex, m.exchange):
		// its type is that of a plugin which was removed
		f.Reason = sink.BrokerException
	default:
		// Everything that can be checked before sending was checked. So this may be a temporary
		// fault of the broker.
		f.Class, f.Reason, f.Whole = sink.Transient, sink.BrokerException, false
		f.Destination = pairText(exchangeName, routingKey)
	}
	return f
}

// maxText is how long an exception's text is at most; the broker cuts off the rest.
const maxText = 250

// hideNames returns the broker's text with the exchange and the routing key as they may be shown.
// When the text may have been cut off, it removes everything that is quoted, because the end of a
// name may be missing.
func hideNames(m *message, text, exchangeName, routingKey string) string {
	if exchangeName == m.exchange && routingKey == m.routingKey {
		return text
	}
	if before, _, quotes := strings.Cut(text, "'"); quotes && len(text) >= maxText {
		return before + "'…"
	}
	return strings.NewReplacer("'"+m.exchange+"'", "'"+exchangeName+"'", "'"+m.routingKey+"'", "'"+routingKey+"'").Replace(text)
}

// brokerText returns the code and the text of an exception.
func brokerText(ex *amqp.Error) string {
	return fmt.Sprintf("%d %s", ex.Code, ex.Reason)
}

var errOtherCluster = errors.New("a broker of another cluster")

const fixOtherCluster = "let every address in sink.rabbitmq.url lead to that cluster; if it was moved or renamed, restart the relay to publish to the other one"

// fixRefusal returns the fix when a broker answers and refuses the connection; "" for any other
// error.
func fixRefusal(err error) string {
	var token *sink.TokenError
	var unfit *conn.UnfitError
	var ex *amqp.Error
	switch {
	case errors.As(err, &unfit):
		return unfit.Fix
	case errors.As(err, &token) && errors.As(err, &ex):
		return token.Fix() + "; the broker needs rabbitmq_auth_backend_oauth2, among its auth_backends, too"
	case errors.As(err, &token):
		return token.Fix()
	}
	if fix := sink.FixTLS("sink.rabbitmq.tls", err); fix != "" {
		return fix
	}
	_, full := connectionLimit(err)
	switch {
	case errors.Is(err, errOtherCluster):
		return fixOtherCluster
	case errors.As(err, &ex) && ex.Code == amqp.AccessRefused:
		return "check sink.rabbitmq.username and password"
	case full:
		return fixConnections
	case errors.As(err, &ex) && ex.Code == amqp.NotAllowed:
		return "check the virtual host in sink.rabbitmq.url, and this user's permissions in it"
	}
	return ""
}

// explain returns err in one line, with the fix of a refusal.
func explain(err error) string {
	if fix := fixRefusal(err); fix != "" {
		return conn.ErrorText(err) + "; " + fix
	}
	return conn.ErrorText(err)
}
