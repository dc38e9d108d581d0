//go:build testall

package fault

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// Events of extreme shape are delivered byte for byte, or are dead letters; the relay lives and the
// others go on. What is too large for one topic is not for another one.
func TestKafkaExtremeEvents(t *testing.T) {
	stand.Parallel(t)
	s := stand.Bare(t, servers.SharedPostgres(t), stand.SharedKafkaWith(t, stand.Topics{More: []string{"large"}}))
	limit := map[string]string{"max.message.bytes": fmt.Sprint(32 << 20)}
	s.Must(s.Kafka.Cluster.CreateTopic(s.Context(), s.Kafka.Topic("large"), 3, 1, limit))
	s.Delivery = "max_in_flight_bytes: 4MiB"
	s.SQL(binaryOutbox)
	r := s.Start()

	big := bytes.Repeat([]byte{0, 0xff, 0x80, '\n', '"'}, 4<<20)
	delivered := map[string][]byte{
		"empty":     {},
		"NULL":      nil,
		"not UTF-8": {0xc3, 0x28, 0, 0xff, '\\', 'x'},
		"one byte":  {0},
	}
	const insert = `INSERT INTO outbox VALUES ($1, $2, $3, 't', $4, $5)`
	for name, payload := range delivered {
		s.SQL(insert, name, "order", "key of "+name, payload, nil)
	}
	headers := new(strings.Builder)
	for i := range 10_000 {
		fmt.Fprintf(headers, `, "header-%d": "value-%d"`, i, i)
	}
	delivered["10,000 headers"] = []byte("x")
	s.SQL(insert, "10,000 headers", "order", "many", []byte("x"), "{"+headers.String()[2:]+"}")
	s.SQL(insert, "20 MB where it is allowed", "large", "big", big, nil)
	s.SQL(insert, "20 MB", "order", "big", big, nil)
	s.SQL(insert, "a key of 1 MB", "order", strings.Repeat("k", 1<<20), []byte("x"), nil)
	s.AwaitRows(checker.Open, 2)
	for i := range 20 { // after the two that are dead
		name := fmt.Sprintf("after %d", i)
		delivered[name] = []byte(name)
		s.SQL(insert, name, "order", name, delivered[name], nil)
	}

	s.Must(s.Consumer.WaitCount(s.Context(), len(delivered)+1))
	got := map[string]kafkaserver.Record{}
	for _, record := range s.Kafka.Records("order") {
		got[record.Header("id")] = record
	}
	for name, want := range delivered {
		record, ok := got[name]
		if !ok || !bytes.Equal(record.Value, want) || (record.Value == nil) != (want == nil) {
			t.Errorf("%s: arrived %t, the value has %d bytes, want the payload's %d", name, ok, len(record.Value), len(want))
		}
	}
	if record := got["10,000 headers"]; record.Header("header-9999") != "value-9999" {
		t.Errorf("of 10,000 headers %d arrived", len(record.Headers))
	}
	if large := s.Kafka.Records("large"); len(large) != 1 || !bytes.Equal(large[0].Value, big) {
		t.Errorf("the large topic has %d records, want one of 20 MB", len(large))
	}
	deadOf(s, r, "too_large", "20 MB", "a key of 1 MB")
	if !r.Running() {
		t.Error("the relay has ended")
	}

	// The topic's limit is raised: what was dead is replayed, without a restart.
	s.Must(s.Kafka.Cluster.SetTopicConfig(s.Context(), s.Kafka.Topic("order"), "max.message.bytes", limit["max.message.bytes"]))
	operated(s, "dead-letters", "replay", "--all", "--wait", "30s")
	s.Must(s.Consumer.WaitIDs(s.Context(), []string{"20 MB", "a key of 1 MB"}))
}

// A compacted topic takes no event without a key. It alone is a dead letter, with the broker's
// words; when the topic is one that takes it, it is replayed.
func TestKafkaCompactedTopicWantsKeys(t *testing.T) {
	stand.Parallel(t)
	compacted := map[string]string{"cleanup.policy": "compact"}
	s := stand.New(t, stand.SharedKafkaWith(t, stand.Topics{Configs: compacted}))
	s.SQL(`ALTER TABLE outbox ADD COLUMN partition_key text`)
	s.Outbox = "key: partition_key"
	s.WatchFlush()
	r := s.Start()
	s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'none', 'placed', '{"seq": 1}')`)
	var id string
	s.Query([]any{&id}, `SELECT id FROM outbox`)
	s.AwaitRows(checker.Open, 1)
	deadOf(s, r, "invalid", id)
	s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, partition_key)
		SELECT gen_random_uuid(), 'order', 'k' || i, 'placed', jsonb_build_object('key', 'k' || i, 'seq', 1), 'k' || i FROM generate_series(1, 120) i`)
	s.Must(s.Consumer.WaitCount(s.Context(), 120))
	if n := metric(s, r, `outbox_rejections_total{class="permanent",reason="invalid"}`); n == 0 {
		t.Error("the rejection is not counted")
	}
	s.Must(s.Kafka.Cluster.SetTopicConfig(s.Context(), s.Kafka.Topic("order"), "cleanup.policy", "delete"))
	operated(s, "dead-letters", "replay", number(s, id), "--wait", "30s")
	s.Check(0)
}
