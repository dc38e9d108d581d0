// What is said of a login that others can read.

package check

import (
	"net"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// login warns of a password that is sent through a network without TLS. (A refused password is a
// finding of each address.)
func (e *examination) login() []sink.Finding {
	opts := e.opts
	if opts.SASL == nil || opts.TLS != nil {
		return nil
	}
	login, err := opts.SASL()
	if err != nil || login == nil {
		return nil
	}
	return clearLogin(login.Mechanism, opts.Brokers)
}

// clearLogin warns of a login without TLS, unless all brokers are on this machine. SCRAM does not
// send the password, but what it sends is enough to try passwords out elsewhere.
func clearLogin(mechanism string, brokers []string) []sink.Finding {
	if !slices.ContainsFunc(brokers, elsewhere) {
		return nil
	}
	detail := "the password crosses the network as it is"
	if mechanism != "plain" {
		detail = "whoever is in between can try out passwords at leisure"
	}
	return []sink.Finding{{
		Name: "login", Warn: true, Detail: "sasl.mechanism " + mechanism + " without TLS: " + detail + ", and reads the events",
		Fix: "sink.kafka.tls: {enabled: true}, with the brokers' SASL_SSL port, and sink.kafka.tls.ca for a CA of your own",
	}}
}

func elsewhere(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !sink.Loopback(host)
}
