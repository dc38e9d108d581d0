package long

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A cluster is upgraded: its brokers are restarted one after the other, each when the one before is in sync again. Then two
// of three are killed, so that there is no controller, and come back. The relay lives through it; nothing arrives twice.
func TestBrokersRestartedInTurn(t *testing.T) {
	stand.Parallel(t)
	cluster := stand.OwnKafka(t, devenv.KafkaOptions{Nodes: 3})
	s := stand.New(t, stand.OnKafka(cluster, stand.Topics{Partitions: 12, Replicas: 3, Configs: map[string]string{"min.insync.replicas": "2"}}))
	topic := s.Kafka.Topic("order")
	s.Must(cluster.WaitInSync(s.Within(time.Minute), topic))
	s.WatchFlush()
	r := s.Start()
	stop := s.Load(300)
	s.More(100)
	for node := 1; node <= 3; node++ {
		s.Must(cluster.StopNode(s.Within(time.Minute), node))
		s.More(100)
		s.Must(cluster.StartNode(s.Within(time.Minute), node))
		s.Must(cluster.WaitInSync(s.Within(time.Minute), topic))
		s.More(100)
	}
	for _, node := range []int{1, 2} {
		s.Must(cluster.KillNode(node))
	}
	s.WriteAt(1000, 100)
	for _, node := range []int{1, 2} {
		s.Must(cluster.StartNode(s.Within(time.Minute), node))
	}
	s.Must(cluster.WaitInSync(s.Within(time.Minute), topic))
	s.More(100)
	s.Leads(s.Ready(r))
	stop()
	s.Check(0)
}
