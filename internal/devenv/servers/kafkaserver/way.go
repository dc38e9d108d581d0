// Ways to the brokers: proxies, one for each broker.

package kafkaserver

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
)

// Way is a way to a cluster through proxies of its own: a listener of each node that is
// advertised at a Proxy. A client that begins there gets no other address, so it never leaves
// the way.
type Way struct{ Proxies []*netproxy.Proxy }

// Way is one of the ways of a cluster, from 0 to Options.Proxied - 1.
func (k *Kafka) Way(i int) *Way {
	w := &Way{}
	for _, n := range k.nodes {
		w.Proxies = append(w.Proxies, n.proxies[i])
	}
	return w
}

// Brokers are the addresses of the way's proxies, one of each node.
func (w *Way) Brokers() []string {
	var all []string
	for _, p := range w.Proxies {
		all = append(all, p.Addr())
	}
	return all
}

// Proxy is the one in front of a node, 1 being the first.
func (w *Way) Proxy(node int) *netproxy.Proxy { return w.Proxies[node-1] }

// The shared cluster's ways are lent to tests of all processes. A way is a file and two addresses:
// where its listener is advertised, and where it is. Who holds the file's lock has the way, also
// while its proxy is cut and the port is free; the kernel takes it back from a process that dies.
// The ports are reserved by the process that started the cluster.
const (
	SharedWays   = 8
	WaysVariable = "CDC_RELAY_TEST_KAFKA_WAYS" // file=advertised=listener,file=advertised=listener
)

// LendWays closes the cluster's own proxies: whoever takes a way starts one at the same address.
func (k *Kafka) LendWays() {
	for _, n := range k.nodes {
		for i, p := range n.proxies {
			p.Close()
			file := filepath.Join(n.dir, fmt.Sprintf("way%d", i))
			k.Ways = append(k.Ways, strings.Join([]string{file, p.Addr(), n.addr(proxiedListener(i))}, "="))
		}
	}
}
