// What `cdc-relay check` says of a login that others can read.

package rabbit

import (
	"net"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// clearLogins warns of the addresses that send the password through a network without TLS.
func clearLogins(urls []string) []sink.Finding {
	var hosts []string
	for _, u := range urls {
		uri, err := amqp.ParseURI(u)
		if err == nil && uri.Scheme == "amqp" && !sink.Loopback(uri.Host) {
			hosts = append(hosts, net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)))
		}
	}
	if hosts == nil {
		return nil
	}
	return []sink.Finding{{
		Name: "login", Warn: true, Detail: "without TLS to " + strings.Join(hosts, ", ") + ": whoever is in between reads the password and the events",
		Fix: "sink.rabbitmq.url: amqps://HOST:5671/VHOST, and sink.rabbitmq.tls.ca for a CA of your own; the broker needs listeners.ssl.default = 5671",
	}}
}
