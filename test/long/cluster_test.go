//go:build nightly

// Three Kafka brokers, and faults of each.

package long

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The relay lives through what happens to three brokers, or on the way to them; nothing arrives
// twice but what was deferred in doubt.
func TestThreeBrokers(t *testing.T) {
	stand.Parallel(t)
	cluster := stand.OwnKafka(t, kafkaserver.Options{Nodes: 3, Proxied: len(unreachable)})
	t.Run("OneOutOfReach", func(t *testing.T) { oneOutOfReach(t, cluster) })
	t.Run("RestartedInTurn", func(t *testing.T) { restartedInTurn(t, cluster) })
}

// unreachable are the ways in which a broker is out of the relay's reach, the one that is met
// sooner first: a connection that is refused, and one that is accepted and says nothing.
var unreachable = []struct {
	name  string
	begin func(*netproxy.Proxy)
}{
	{"cut", (*netproxy.Proxy).Cut},
	{"stalled", (*netproxy.Proxy).Stall},
}

// The cluster is healthy, and the relay alone does not reach the broker that leads a partition: no
// other leader will come. What goes there is deferred, the partition is named, the other partitions
// flow, and when the way is fixed all goes on. Both ways at once, each met by a relay of its own:
// it takes a while until a broker that says nothing is given up.
func oneOutOfReach(t *testing.T, cluster *kafkaserver.Kafka) {
	const partition = 0
	var stands []*stand.Stand
	var relays []*runner.Relay
	var stops []func()
	var broken []*netproxy.Proxy
	for i, fault := range unreachable {
		s := stand.New(t, stand.OnKafka(cluster, stand.Topics{Replicas: 3, Configs: map[string]string{"min.insync.replicas": "2"}}))
		way := cluster.Way(i)
		s.Kafka.Brokers, s.Delivery = way.Brokers(), "confirm_timeout: 2s"
		s.Must(cluster.WaitInSync(s.Context(), s.Kafka.Topic("order")))
		leader, err := cluster.Leader(s.Context(), s.Kafka.Topic("order"), partition)
		s.Must(err)
		s.WatchFlush()
		relays, stands = append(relays, s.Start()), append(stands, s)
		stops, broken = append(stops, s.Load(200)), append(broken, way.Proxy(leader))
		s.More(100)
		fault.begin(way.Proxy(leader))
	}
	for i, s := range stands {
		t.Log(unreachable[i].name)
		outOfReachPaused(s, relays[i], partition)
		s.Must(broken[i].Restore())
		s.Ready(relays[i])
		s.Fresh(100)
		s.Leads(relays[i])
		stops[i]()
		s.Check(s.InDoubt(relays[i]))
	}
}

// outOfReachPaused waits until a partition is paused and named because its leader cannot be
// reached, and its events are deferred, and sees the others flow.
func outOfReachPaused(s *stand.Stand, r *runner.Relay, partition int) {
	s.T.Helper()
	topic := s.Kafka.Topic("order")
	destination := fmt.Sprintf("topic %q, partition %d", topic, partition)
	s.Unready(r, "broker down")
	s.Until("the status to say what is paused", func() bool {
		var status struct {
			State  string
			Broker struct {
				Paused []struct{ Destination, Reason, Error string }
			}
		}
		_, body, err := r.Get(s.Context(), "/api/v1/status")
		s.Must(err)
		s.Must(json.Unmarshal([]byte(body), &status))
		if status.State != "broker down" { // until the way is fixed
			s.T.Fatalf("the state is %q while the broker is away", status.State)
		}
		for _, paused := range status.Broker.Paused {
			if paused.Destination != destination || paused.Reason != "no_leader" || paused.Error == "" {
				s.T.Fatalf("paused is %+v, want %s, no_leader, and why", paused, destination)
			}
		}
		return len(status.Broker.Paused) > 0
	})
	s.AwaitRows(checker.Deferred, 20)
	code, body := s.Readyz(r)
	if code != 503 || !strings.Contains(body, "broker down") || !strings.Contains(body, topic) || !strings.Contains(body, "no_leader") {
		s.T.Errorf("/readyz is %d: %s", code, body)
	}
	before := s.Kafka.Ends("order")
	s.Until("the other partitions to flow", func() bool {
		for other, end := range s.Kafka.Ends("order") {
			if other != partition && end < before[other]+20 {
				return false
			}
		}
		return true
	})
}

// A cluster is upgraded: its brokers are restarted one after the other, each when the one before is
// in sync again. Then two of three are killed, so that there is no controller, and come back.
func restartedInTurn(t *testing.T, cluster *kafkaserver.Kafka) {
	s := stand.New(t, stand.OnKafka(cluster, stand.Topics{Partitions: 12, Replicas: 3, Configs: map[string]string{"min.insync.replicas": "2"}}))
	topic := s.Kafka.Topic("order")
	s.Must(cluster.WaitInSync(s.Context(), topic))
	r := s.StartWatched()
	stop := s.Load(300)
	s.More(100)
	for node := 1; node <= 3; node++ {
		s.Must(cluster.StopNode(s.Context(), node))
		s.More(100)
		s.Must(cluster.StartNode(s.Context(), node))
		s.Must(cluster.WaitInSync(s.Context(), topic))
		s.More(100)
	}
	for _, node := range []int{1, 2} {
		s.Must(cluster.KillNode(node))
	}
	s.WriteAt(1000, 100)
	for _, node := range []int{1, 2} {
		s.Must(cluster.StartNode(s.Context(), node))
	}
	s.Must(cluster.WaitInSync(s.Context(), topic))
	s.More(100)
	s.Leads(s.Ready(r))
	stop()
	s.Check(0)
}
