//go:build nightly

package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// TestKafkaCluster has the tests that take several brokers or change the cluster. The relay lives
// through all of it, so nothing arrives twice but what was in doubt when its partition was paused.
func TestKafkaCluster(t *testing.T) {
	stand.Parallel(t)
	cluster := stand.OwnKafka(t, kafkaserver.Options{Nodes: 3, Authorizer: true})
	t.Run("RightTakenAway", func(t *testing.T) { rightTakenAway(t, cluster) })
	t.Run("TooFewReplicas", func(t *testing.T) { tooFewReplicas(t, cluster) })
	t.Run("TooFewReplicasEverywhere", func(t *testing.T) { tooFewReplicasEverywhere(t, cluster) })
	t.Run("NoLeader", func(t *testing.T) { noLeader(t, cluster) })
	t.Run("BrokerOfThreeFrozen", func(t *testing.T) { brokerOfThreeFrozen(t, cluster) })
}

// Partitions that have fewer replicas in sync than min.insync.replicas are paused, and named, and
// their events deferred; the others flow. When the replica is back they go on, without a restart of
// the relay.
func tooFewReplicas(t *testing.T, cluster *kafkaserver.Kafka) {
	s := stand.New(t, stand.OnKafka(cluster, stand.Topics{Replicas: 2, Configs: map[string]string{"min.insync.replicas": "2"}}))
	s.Delivery = "confirm_timeout: 2s"
	topic := s.Kafka.Topic("order")
	s.Must(cluster.WaitInSync(s.Context(), topic))
	r := s.StartWatched()
	stop := s.Load(200)
	s.More(100)
	const victim = 1
	flows := -1
	for partition := range 3 {
		if replicas, _, err := cluster.Replicas(s.Context(), topic, partition); err != nil {
			t.Fatal(err)
		} else if !slices.Contains(replicas, victim) {
			flows = partition
		}
	}
	if flows < 0 {
		t.Fatal("every partition has a replica on the broker that is killed")
	}
	s.Must(cluster.KillNode(victim))
	paused := pausedFor(s, r, "too_few_replicas")
	if !strings.HasPrefix(paused.Destination, fmt.Sprintf("topic %q, partition ", topic)) || strings.HasSuffix(paused.Destination, fmt.Sprint(flows)) || paused.Words == "" {
		t.Errorf("paused is %+v, want the partition and the broker's words", paused)
	}
	s.AwaitRows(checker.Deferred, 30)
	code, body := s.Readyz(r)
	if code != 200 || !strings.Contains(body, topic) || !strings.Contains(body, "partition") {
		t.Errorf("/readyz is %d: %s", code, body)
	}
	before := status(s, r).Totals.Published // no consumer reads a partition without its replicas
	s.Until("the other partition to flow", func() bool { return status(s, r).Totals.Published > before+20 })
	s.Must(cluster.StartNode(s.Context(), victim))
	s.More(100)
	s.Leads(s.Ready(r))
	stop()
	s.Check(s.InDoubt(r))
	fixed(s, r)
}

// A broker is stopped, and every partition that the relay writes to has too few replicas in sync:
// that is an outage of the cluster. The relay says so and waits. No destination is paused, and
// nothing is deferred. When the broker is back every event arrives once, each key in order.
func tooFewReplicasEverywhere(t *testing.T, cluster *kafkaserver.Kafka) {
	s := stand.New(t, stand.OnKafka(cluster, stand.Topics{Replicas: 3, Configs: map[string]string{"min.insync.replicas": "3"}}))
	topic := s.Kafka.Topic("order")
	s.Must(cluster.WaitInSync(s.Context(), topic))
	r := s.StartWatched()
	s.Deliver(100)
	// nothing is on its way when it stops: that would be answered after confirm_timeout
	const victim = 2
	s.Must(cluster.StopNode(s.Context(), victim))
	s.Until("every partition to miss a replica", func() bool {
		for partition := range 3 {
			if _, inSync, err := cluster.Replicas(s.Context(), topic, partition); err != nil || len(inSync) == 3 {
				return false
			}
		}
		return true
	})
	stop := s.Load(200)
	s.Unready(r, "broker down: too few replicas in sync for every partition that was tried: topic ")
	if st := status(s, r); st.State != "broker down" || len(st.Broker.Paused) > 0 {
		t.Errorf("the state is %q, paused are %+v", st.State, st.Broker.Paused)
	}
	s.Must(cluster.StartNode(s.Context(), victim))
	s.More(100)
	s.Leads(s.Ready(r))
	stop()
	s.Check(0)
	var deferred int
	s.Query([]any{&deferred}, `SELECT count(*) FROM cdc_relay.retry`)
	if n := s.Metric(r, `outbox_rejections_total{class="destination",reason="too_few_replicas"}`); n > 0 || deferred > 0 {
		t.Errorf("%v events were rejected, %d are deferred", n, deferred)
	}
}

// A topic has one replica, and the broker that has it is stopped, in order: nobody leads. Its event
// is deferred, and its partition named by the status, /readyz and the metrics; the other topic
// flows on the two brokers that are left. When the broker is back the event goes, without a restart
// of the relay.
func noLeader(t *testing.T, cluster *kafkaserver.Kafka) {
	s := stand.New(t, stand.OnKafka(cluster, stand.Topics{Replicas: 3, More: []string{"alone"}}))
	s.Delivery = "confirm_timeout: 2s"
	topic := s.Kafka.Topic("alone")
	s.Must(cluster.CreateTopic(s.Context(), topic, 1, 1, nil))
	s.Must(cluster.WaitInSync(s.Context(), s.Kafka.Topic("order")))
	r := s.StartWatched()
	insert := func(key string) (id string) {
		s.SQL(stand.Insert("outbox", "alone", key))
		s.Query([]any{&id}, `SELECT id FROM outbox WHERE aggregateid = $1`, key)
		return id
	}
	stop := s.Load(200)
	s.More(100)
	s.Must(s.Consumer.WaitIDs(s.Context(), []string{insert("alone-1")}))
	leader, err := cluster.Leader(s.Context(), topic, 0)
	s.Must(err)
	s.Must(cluster.StopNode(s.Context(), leader))
	id := insert("alone-2")
	var row deferredRow // beside it may be some of the other topic, whose leaders move
	s.Until("the event to be deferred for want of a leader", func() bool {
		s.Query([]any{&row.ID, &row.Destination, &row.Words}, `SELECT coalesce(min(convert_from(r.id, 'UTF8')), ''), coalesce(min(destination), ''), coalesce(min(error), '')
			FROM cdc_relay.retry r
			WHERE r.slot = $1 AND reason = 'no_leader' AND convert_from(r.id, 'UTF8') = $2`, s.Slot, id)
		return row.ID != ""
	})
	if want := fmt.Sprintf("topic %q, partition 0", topic); row.Destination != want || row.Words == "" {
		t.Errorf("deferred is %+v, want it for %s, and why", row, want)
	}
	s.Fresh(100)
	s.Until("a relay that is ready and names the partition and the reason", func() bool {
		code, body := s.Readyz(r)
		return code == 200 && strings.Contains(body, topic) && strings.Contains(body, "no_leader")
	})
	s.Until("the metrics to tell of one partition that is paused, for want of a leader", func() bool {
		return s.Metric(r, `outbox_rejections_total{class="destination",reason="no_leader"}`) > 0 && s.Metric(r, "outbox_destinations_paused") == 1
	})
	s.Must(r.WaitLog(s.Context(), topic))
	s.Must(r.WaitLog(s.Context(), "no_leader"))

	s.Must(cluster.StartNode(s.Context(), leader))
	s.Fresh(100)
	s.Leads(s.Ready(r))
	stop()
	s.Check(s.InDoubt(r))
	fixed(s, r)
}

// The right to write to one topic is taken away and given back, under load: its events wait and are
// named, those of another topic flow.
func rightTakenAway(t *testing.T, cluster *kafkaserver.Kafka) {
	s := stand.New(t, stand.OnKafka(cluster, stand.Topics{More: []string{"ledger"}}))
	topic := s.Kafka.Topic("order")
	s.Must(cluster.CreateTopic(s.Context(), s.Kafka.Topic("ledger"), 3, 1, nil))
	r := s.StartWatched()
	stop := s.Load(200)
	s.More(100)
	s.Must(cluster.Deny(s.Context(), topic, "User:ANONYMOUS"))
	paused := pausedFor(s, r, "not_permitted")
	if paused.Destination != `topic "`+topic+`"` || !strings.Contains(paused.Words, "Topic Authorization Failed") {
		t.Errorf("paused is %+v, want the topic and the broker's words", paused)
	}
	s.AwaitRows(checker.Deferred, 50)
	ledgerFlows(s)
	s.Must(cluster.Allow(s.Context(), topic, "User:ANONYMOUS"))
	s.More(100)
	stop()
	s.Check(0)
	fixed(s, r)
}

// A broker freezes: its connections stay, and it answers nothing. It leads one partition, of a
// second one it is the follower that the leader waits for, with the third it has nothing to do.
// First it goes on soon, and answers late, when its requests have timed out. Then it stays frozen
// until the cluster gives it up, and goes on with what it was sent before. What was in doubt when
// its partition was paused may be in the log twice, and nothing else.
func brokerOfThreeFrozen(t *testing.T, cluster *kafkaserver.Kafka) {
	s := stand.New(t, stand.OnKafka(cluster, stand.Topics{Replicas: 2, Configs: map[string]string{"min.insync.replicas": "2"}}))
	s.Delivery = "confirm_timeout: 500ms"
	topic := s.Kafka.Topic("order")
	s.Must(cluster.WaitInSync(s.Context(), topic))
	const victim = 3
	led, followed := -1, -1
	for partition := range 3 {
		replicas, _, err := cluster.Replicas(s.Context(), topic, partition)
		s.Must(err)
		leader, err := cluster.Leader(s.Context(), topic, partition)
		s.Must(err)
		switch {
		case leader == victim:
			led = partition
		case slices.Contains(replicas, victim):
			followed = partition
		}
	}
	if led < 0 || followed < 0 {
		t.Fatalf("broker %d leads partition %d and follows in %d, want one of each", victim, led, followed)
	}
	r := s.StartWatched()
	stop := s.Load(300)
	s.More(100)

	s.Must(cluster.FreezeNode(victim))
	s.Until("an event to wait for longer than confirm_timeout", func() bool {
		return s.Metric(r, "outbox_oldest_unsettled_seconds") > 0.7
	})
	s.Must(cluster.ThawNode(victim))
	s.Must(cluster.WaitInSync(s.Context(), topic))
	s.Fresh(100)

	s.Must(cluster.FreezeNode(victim))
	name := func(partition int) string { return fmt.Sprintf("topic %q, partition %d", topic, partition) }
	s.Until("the partition that it follows to be paused", func() bool {
		// "unconfirmed" until the cluster has given it up
		for _, p := range status(s, r).Broker.Paused {
			if p.Destination == name(followed) && (p.Reason == "unconfirmed" || p.Reason == "too_few_replicas") && p.Words != "" {
				t.Logf("first: %+v", p)
				return true
			}
		}
		return false
	})
	want := []string{name(led), name(followed)}
	slices.Sort(want)
	s.Until("both of its partitions to be paused for want of replicas", func() bool {
		st := status(s, r)
		var paused []string
		for _, p := range st.Broker.Paused {
			if p.Reason == "too_few_replicas" && p.Words != "" {
				paused = append(paused, p.Destination)
			}
		}
		slices.Sort(paused) // they are listed by the time when they were
		return slices.Equal(paused, want)
	})
	before := status(s, r).Totals.Published // no consumer reads a partition without its replicas
	s.Until("the third partition to flow", func() bool { return status(s, r).Totals.Published > before+20 })
	s.Must(cluster.ThawNode(victim))
	s.Must(cluster.WaitInSync(s.Context(), topic))
	s.Fresh(100)
	s.Leads(s.Ready(r))
	stop()
	s.Check(s.InDoubt(r))
	fixed(s, r)
}

// ledgerFlows writes events of another aggregate and waits for them.
func ledgerFlows(s *stand.Stand) {
	s.T.Helper()
	for i := range 30 {
		s.SQL(stand.Insert("outbox", "ledger", "ledger-"+strconv.FormatInt(time.Now().UnixNano(), 36)+strconv.Itoa(i)))
	}
	var ids []string
	s.Query([]any{&ids}, `SELECT array_agg(id::text) FROM outbox WHERE aggregatetype = 'ledger'`)
	s.Must(s.Consumer.WaitIDs(s.Context(), ids))
}
