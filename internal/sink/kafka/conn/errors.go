// Errors of connections and brokers, in one line, and what to do about them.

package conn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// ErrOtherCluster says that a broker is not of the cluster that the relay has begun with.
var ErrOtherCluster = errors.New("a broker of another cluster")

// FixRefusal returns the fix when a server answers but refuses the connection; "" for any other
// error.
func FixRefusal(err error) string {
	if fix := sink.FixTLS("sink.kafka.tls", err); fix != "" {
		return fix
	}
	var notTLS tls.RecordHeaderError
	switch {
	case errors.Is(err, ErrOtherCluster):
		return "let sink.kafka.brokers lead to that cluster again, or restart the relay to publish to the other one"
	case errors.Is(err, ErrLogin):
		return "check sink.kafka.sasl: mechanism, username and password"
	case errors.Is(err, ErrWantsTLS):
		return "set sink.kafka.tls.enabled: true, or use a port without TLS"
	case errors.Is(err, ErrWantsLogin):
		return "set sink.kafka.sasl, or use a port without a login"
	case errors.As(err, &notTLS):
		return "the port does not speak TLS: use the brokers' TLS port, or leave sink.kafka.tls out"
	}
	return ""
}

// Explain returns err in one line, with the fix of a refusal.
func Explain(err error) string {
	if fix := FixRefusal(err); fix != "" {
		return OneLine(err) + "; " + fix
	}
	return OneLine(err)
}

// ephemeral matches the parts of an error's text that differ at every connect: the local end of a
// socket, and the time in the error of an expired certificate.
var ephemeral = lazy.Regexp(`[^ ]+:\d+->|current time \S+ is `)

// OneLine returns err in one line. The line is the same for the same cause.
func OneLine(err error) string {
	return strings.ReplaceAll(ephemeral().ReplaceAllString(err.Error(), ""), "\n", "; ")
}

// ErrorText returns a broker's own text, or the text of its error code.
func ErrorText(code int16, message string) string {
	if message != "" {
		return fmt.Sprintf("%s (%d)", message, code)
	}
	return kafkago.Error(code).Error()
}
