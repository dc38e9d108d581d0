//go:build testall

package fault

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A topic is deleted and re-created while events are on their way to it. What had arrived was read
// before; the rest goes to the new one, each key in order, whatever number of partitions that has.
func TestKafkaTopicMadeAgain(t *testing.T) {
	stand.Parallel(t)
	const partitions = 1 // fewer than before
	s := stand.New(t, stand.SharedKafka(t))
	topic, cluster := s.Kafka.Topic("order"), s.Kafka.Cluster
	r := s.StartWatched()
	s.Deliver(100)
	s.Must(s.Consumer.Drain(s.Context()))
	s.Broker.Hold(netproxy.Up) // nothing more gets there unread
	stop := s.Load(300)
	s.Must(s.Broker.WaitHeld(s.Context(), netproxy.Up, 200))
	s.Must(cluster.DeleteTopic(s.Context(), topic))
	s.Broker.Release(netproxy.Up)
	paused := pausedFor(s, r, "no_topic")
	if !strings.Contains(paused.Destination, topic) {
		t.Errorf("paused is %+v, want topic %s", paused, topic)
	}
	s.AwaitRows(checker.Deferred, 100)
	s.Must(cluster.CreateTopic(s.Context(), topic, partitions, 1, nil))
	s.More(300)
	stop()
	s.Check(0)
	fixed(s, r)
	s.Ready(r)
}

// A request carries batches of many partitions, and one of them is refused: that one is, and no
// other. Its answer is taken for no other's.
func TestKafkaOnePartitionOfARequestRefuses(t *testing.T) {
	stand.Parallel(t)
	const partitions, refused = 8, 5
	s := stand.New(t, stand.SharedKafkaWith(t, stand.Topics{Partitions: partitions}))
	r := s.StartWatched()
	var keys [partitions]string // one of each partition
	for i, found := 0, 0; found < partitions; i++ {
		if key := fmt.Sprint("key-", i); keys[stand.JavaPartition(key, partitions)] == "" {
			keys[stand.JavaPartition(key, partitions)] = key
			found++
		}
	}
	row := func(partition, seq, fill int) string {
		return fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(),
			'order', '%s', 'placed', jsonb_build_object('key', '%[1]s', 'seq', %d, 'fill', repeat('x', %d)));`, keys[partition], seq, fill)
	}
	for partition := range partitions {
		s.SQL(row(partition, 1, 0))
	}
	s.Broker.Delay(20 * time.Millisecond)
	s.Write(300)
	s.Broker.Delay(0)
	s.Must(s.Consumer.WaitCount(s.Context(), s.Committed()+partitions))
	if n := status(s, r).Broker.Connections; n != 3 { // one for metadata, and two for requests
		t.Fatalf("%d connections, want 3", n)
	}

	s.Broker.Hold(netproxy.Up)
	// each in a request of its own; what comes while both are under way goes together
	for partition := range 2 {
		s.SQL(row(partition, 2, 0))
		s.Until("a request under way", func() bool { return status(s, r).Broker.PendingConfirms == partition+1 })
	}
	rest := ""
	for partition := 2; partition < partitions; partition++ {
		rest += row(partition, 2, map[int]int{refused: 2 << 20}[partition])
	}
	s.SQL(rest)
	inFlight(s, r, partitions)
	s.Broker.Release(netproxy.Up)

	s.Must(s.Consumer.WaitCount(s.Context(), s.Committed()+2*partitions-1))
	s.AwaitRows(checker.Open, 1)
	var id string
	s.Query([]any{&id}, `SELECT id::text FROM outbox WHERE aggregateid = $1 AND (payload->>'seq')::int = 2`, keys[refused])
	deadOf(s, r, "too_large", id)
	s.Must(s.Kafka.Cluster.SetTopicConfig(s.Context(), s.Kafka.Topic("order"), "max.message.bytes", fmt.Sprint(4<<20)))
	operated(s, "dead-letters", "replay", number(s, id), "--wait", "10m")
	s.Check(0)
}

// Partitions are added while events flow: a key goes to the partition that Java's producer would
// choose, by a count that only rises, so it leaves a partition for good and never goes back. Within
// a partition the checker sees its order. (Across partitions the order in which a consumer sees
// records means nothing.)
func TestKafkaPartitionsAdded(t *testing.T) {
	stand.Parallel(t)
	counts := []int{3, 5, 8, 13}
	s := stand.New(t, stand.SharedKafkaWith(t, stand.Topics{Partitions: counts[0]}))
	topic, cluster := s.Kafka.Topic("order"), s.Kafka.Cluster
	r := s.StartWatched()
	stop := s.Load(400)
	s.More(100)
	for _, count := range counts[1:] {
		s.Must(cluster.AddPartitions(s.Context(), topic, count))
		s.More(30)
		// whoever loses a connection asks for the partitions
		lose(s, s.Broker, netproxy.Down, 1, s.Broker.Reset)
		s.Until("the new partitions to be used", func() bool {
			ends := s.Kafka.Ends("order")
			return ends[count-1] > 0 || ends[count-2] > 0
		})
		s.More(50)
	}
	s.Leads(s.Ready(r))
	stop()
	s.Check(0)
	s.WentBy(counts...)
}

// A topic that does not exist is paused, by name, and what goes there is deferred; another one's
// events flow. Creating it is all the fixing there is.
func TestKafkaTopicUnknownThenCreated(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t, stand.SharedKafkaWith(t, stand.Topics{None: true, More: []string{"ledger"}}))
	topic := s.Kafka.Topic("order")
	s.Must(s.Kafka.Cluster.CreateTopic(s.Context(), s.Kafka.Topic("ledger"), 3, 1, nil))
	r := s.StartWatched()
	stop := s.Load(200)
	paused := pausedFor(s, r, "no_topic")
	if paused.Destination != `topic "`+topic+`"` || paused.Words == "" {
		t.Errorf("paused is %+v, want the topic and the broker's words", paused)
	}
	s.AwaitRows(checker.Deferred, 50)
	ledgerFlows(s)
	code, body := s.Readyz(r)
	if code != 200 || !strings.Contains(body, topic) {
		t.Errorf("/readyz is %d: %s", code, body)
	}
	s.Until("a second attempt, and the topic as the one paused destination", func() bool {
		return s.Metric(r, `outbox_rejections_total{class="destination",reason="no_topic"}`) >= 2 && s.Metric(r, "outbox_destinations_paused") == 1
	})
	s.Must(s.Kafka.Cluster.CreateTopic(s.Context(), topic, 5, 1, nil))
	s.More(100)
	stop()
	s.Check(0)
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
