// The cluster that the sink publishes to: one for its life.

package rabbit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"go.uber.org/zap"
)

// cluster is the first cluster that the sink connected to: the name that a broker sent, and its
// address.
type cluster struct{ name, addr string }

// admit refuses a connection to a broker of another cluster than the first one. Addresses may lead
// to two unrelated brokers: blue and green behind one name or one proxy, or a list of both. Each
// confirms what it gets, and the consumers of either miss what the other one has. Nothing is sent
// over a connection that is refused, so it is the same as a broker that is away.
//
// A broker sends the name of its cluster when a connection begins. A name that somebody has set is
// the same on all nodes, and only such names distinguish clusters. Without one, each node sends its
// own, as NODE@HOST (measured on 3.10; early versions sent the first node's from all). Two of those
// may be nodes of one cluster, so both are taken; see doubt. A broker that sends no name (another
// product, or an early version) is taken, too.
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

// logDoubts logs what the sink's state does not show: a connection to a cluster in doubt, and an
// address that was skipped because it leads to another cluster, while the next one serves. Each
// line is logged once.
func (s *Sink) logDoubts(sess *conn.Session, failures []error) {
	if doubt := s.doubt(sess); doubt != "" && s.doubtLogged.CompareAndSwap(false, true) {
		s.cfg.Log.Warn("broker has no cluster name", zap.String("reason", doubt+"; "+fixDoubt))
	}
	for _, err := range failures {
		if !errors.Is(err, errOtherCluster) {
			continue
		}
		reason := explain(err)
		if _, again := s.addressesLogged.LoadOrStore(reason, nil); !again {
			s.cfg.Log.Warn("broker address skipped: it leads to another cluster", zap.String("reason", reason))
		}
	}
}
