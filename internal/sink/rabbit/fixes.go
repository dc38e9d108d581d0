// What to do about a broker that refuses a connection.

package rabbit

import (
	"crypto/tls"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

var errOtherCluster = errors.New("a broker of another cluster")

const adviceOtherCluster = "let every address in sink.rabbitmq.url lead to that cluster; if it was moved or renamed, restart the relay to publish to the other one"

// fixRefusal is what to do when somebody answers, and a connection cannot be made; "" when that is
// not so.
func fixRefusal(err error) string {
	if fix := sink.FixTLS("sink.rabbitmq.tls", err); fix != "" {
		return fix
	}
	var ex *amqp.Error
	var notTLS tls.RecordHeaderError
	switch {
	case errors.Is(err, errOtherCluster):
		return adviceOtherCluster
	case errors.As(err, &notTLS):
		return "the port does not speak TLS: use the broker's TLS port, or an amqp:// URL"
	case errors.As(err, &ex) && ex.Code == amqp.AccessRefused:
		return "check sink.rabbitmq.username and password"
	case errors.As(err, &ex) && ex.Code == amqp.NotAllowed:
		return "check the virtual host in sink.rabbitmq.url, and this user's permissions in it"
	}
	return ""
}

// explain is err in one line, with what to do about a refusal.
func explain(err error) string {
	if fix := fixRefusal(err); fix != "" {
		return conn.ErrorText(err) + "; " + fix
	}
	return conn.ErrorText(err)
}
