// The cluster that the sink publishes to: one for its life.

package rabbit

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// cluster is the first cluster that the sink connected to: the name that a broker sent, and its
// address.
type cluster struct{ name, addr string }

// admit refuses a connection to a broker of another cluster than the first one. Addresses may lead
// to two unrelated brokers: blue and green behind one name or one proxy, or a list of both. Each
// confirms what it gets, and the consumers of either miss what the other one has. Nothing is sent
// over a refused connection, so the effect is that of a broker that is away.
//
// A broker sends the name of its cluster when a connection begins. A name that somebody has set is
// the same on all nodes, and only such names distinguish clusters. Without one, each node sends its
// own, as NODE@HOST (measured on 3.10; early versions sent the first node's from all). Two of those
// may be nodes of one cluster, so both are taken; see doubt. A broker that sends no name (another
// product, or an early version) is taken, too.
func (s *Sink) admit(name, addr string) error {
	if name == "" || s.cluster.CompareAndSwap(nil, &cluster{name, addr}) {
		return nil
	}
	began := s.cluster.Load()
	if began.name == name || isNode(began.name) && isNode(name) {
		return nil
	}
	return fmt.Errorf("%w: %s is of cluster %s, the relay has begun with %s at %s", errOtherCluster, addr, name, began.name, began.addr)
}

// isNode reports whether a cluster's name is only that of the node which has sent it.
func isNode(name string) bool { return strings.Contains(name, "@") }

// doubt describes a connection that was accepted without knowing whether it is to the sink's
// cluster; "" when that is known, or there is nothing to compare. AMQP offers a client with the
// relay's few rights no other way to find out.
func (s *Sink) doubt(sess *conn.Session) string {
	name, began := sess.ClusterName(), s.cluster.Load()
	if name == "" || began == nil || began.name == name {
		return ""
	}
	return fmt.Sprintf("%s is node %s, and %s is node %s: cannot determine whether they are one cluster, as it has no name", sess.Address, name, began.addr, began.name)
}

const fixDoubt = "if they are one, name it: rabbitmqctl set_cluster_name NAME, then restart the relay; if not, let every address in sink.rabbitmq.url lead to one of them"
