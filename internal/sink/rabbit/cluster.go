// The cluster that the sink publishes to: one for its life.

package rabbit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"go.uber.org/zap"
)

// cluster is what the sink has begun with: the name that a broker has sent, and the address where.
type cluster struct{ name, addr string }

// admit refuses a connection to a broker of another cluster than the one that the sink has begun
// with. Addresses may lead to two brokers that know nothing of each other: blue and green behind
// one name or one proxy, or a list of both. Each confirms what it gets, and the consumers of either
// miss what the other one has. Nothing is sent over a connection that is refused, so it is the same
// as a broker that is away.
//
// A broker sends the name of its cluster when a connection begins. A name that somebody has set is
// the same on all nodes, and only such names tell clusters apart. As long as nobody has, each node
// sends its own, as NODE@HOST (measured on 3.10; early versions sent the first node's from all).
// Two of those may be nodes of one cluster, so both are taken; see doubt. A broker that sends no
// name (another product, or an early version) is taken, too.
func (s *Sink) admit(sess *conn.Session) error {
	name := sess.ClusterName()
	if name == "" || s.cluster.CompareAndSwap(nil, &cluster{name, sess.Address}) {
		return nil
	}
	began := s.cluster.Load()
	if began.name == name || isNode(began.name) && isNode(name) {
		return nil
	}
	return fmt.Errorf("%w: %s is of cluster %s, the relay has begun with %s at %s", errOtherCluster, sess.Address, name, began.name, began.addr)
}

// isNode reports whether a cluster's name is only that of the node which has sent it.
func isNode(name string) bool { return strings.Contains(name, "@") }

// doubt says that a connection was taken without knowing whether it is to the sink's cluster; ""
// when that is known, or nothing is. AMQP has nothing else by which a client with the relay's few
// rights could find out.
func (s *Sink) doubt(sess *conn.Session) string {
	name, began := sess.ClusterName(), s.cluster.Load()
	if name == "" || began == nil || began.name == name {
		return ""
	}
	return fmt.Sprintf("%s is node %s, and %s is node %s: whether they are one cluster cannot be told, as it has no name", sess.Address, name, began.addr, began.name)
}

const adviceDoubt = "if they are, name it: rabbitmqctl set_cluster_name NAME, then restart the relay; if not, let every address in sink.rabbitmq.url lead to one of them"

// tell writes what the sink's state does not show: that a connection is to a cluster in doubt, and
// that an address was passed over since it leads to another cluster, while the next one serves.
// Each line is written once.
func (s *Sink) tell(sess *conn.Session, failures []error) {
	if doubt := s.doubt(sess); doubt != "" && s.doubted.CompareAndSwap(false, true) {
		s.cfg.Log.Warn("broker without the name of a cluster", zap.String("reason", doubt+"; "+adviceDoubt))
	}
	for _, err := range failures {
		if !errors.Is(err, errOtherCluster) {
			continue
		}
		reason := explain(err)
		if _, again := s.strays.LoadOrStore(reason, nil); !again {
			s.cfg.Log.Warn("broker address passed over", zap.String("reason", reason))
		}
	}
}
