// The addresses of a cluster's brokers, and which of them run.

package kafkaserver

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// Brokers are the addresses (host:port) of the listeners that ask for nothing, one of each node.
func (k *Kafka) Brokers() []string {
	if len(k.nodes) == 0 {
		return slices.Clone(k.Bootstrap)
	}
	return k.addresses("PLAINTEXT")
}

// TLSBrokers are the listeners with TLS and no login; MTLSBrokers want a client certificate of
// Certs' CA, too. With Secure only, as SASLBrokers and SASLTLSBrokers. The server's certificate is
// good for localhost and 127.0.0.1, which is what is advertised.
func (k *Kafka) TLSBrokers() []string { return k.addresses("TLS") }

// MTLSBrokers are the listeners with TLS that want a client certificate.
func (k *Kafka) MTLSBrokers() []string { return k.addresses("MTLS") }

// SASLBrokers are the listeners with a login (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512) and no TLS.
func (k *Kafka) SASLBrokers() []string { return k.addresses("SASL") }

// SASLTLSBrokers are the listeners with TLS and a login.
func (k *Kafka) SASLTLSBrokers() []string { return k.addresses("SASLTLS") }

// TokenBrokers are the listeners of Options.Issuer, without TLS.
func (k *Kafka) TokenBrokers() []string { return k.addresses("TOKEN") }

func (k *Kafka) addresses(listener string) []string {
	var all []string
	for _, n := range k.nodes {
		if addr := n.advertised(listener); addr != "" {
			all = append(all, addr)
		}
	}
	return all
}

// Running are the addresses of the nodes whose process runs.
func (k *Kafka) Running() []string {
	var all []string
	for _, n := range k.nodes {
		if n.server.Running() && !n.frozen.Load() {
			all = append(all, n.advertised("PLAINTEXT"))
		}
	}
	return all
}

// live are the brokers to be asked.
func (k *Kafka) live() []string {
	if len(k.nodes) > 0 {
		return k.Running()
	}
	return k.Brokers()
}

// everywhere returns when known says true for each broker: those that run, and of a cluster that is
// not ours those given.
func (k *Kafka) everywhere(ctx context.Context, known func(addr string) (bool, error)) error {
	for _, addr := range k.Brokers() {
		var last error
		err := processes.Poll(ctx, 5*time.Millisecond, func() (ok bool, _ error) {
			if len(k.nodes) > 0 && !slices.Contains(k.Running(), addr) {
				return true, nil
			}
			ok, last = known(addr)
			return ok && last == nil, nil
		})
		if err != nil {
			return errors.Join(err, last)
		}
	}
	return nil
}
