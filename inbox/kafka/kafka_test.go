package kafka

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
)

// The offset to commit is the lowest that was not handled, over gaps in the log, and a session
// begins there.
func TestPartition(t *testing.T) {
	p := &partition{next: 5, committedTo: -1}
	committed := func(want int64) {
		t.Helper()
		to, changed := p.offsetToCommit()
		if to != want || changed != (want != p.committedTo) {
			t.Errorf("the offset to commit is %d (%v), want %d", to, changed, want)
		}
		p.noteCommitted(to)
	}
	committed(5) // of a group that had none
	committed(5)
	for _, offset := range []int64{5, 6, 9, 10} { // 7 and 8 were compacted away
		p.noteTaken(offset)
	}
	committed(5)
	p.noteHandled(6)
	p.noteHandled(9)
	committed(5)
	p.noteHandled(5)
	committed(10)
	p.noteHandled(10)
	p.skipTo(12) // the end of a transaction
	committed(12)
	p.noteTaken(12)
	p.noteTaken(13)
	p.noteHandled(13)
	if from := p.startReading(); from != 12 {
		t.Errorf("another session begins with %d, want 12", from)
	}
	p.noteTaken(12)
	p.noteHandled(12)
	committed(13)
	if _, ok := p.offsetToDelete(); ok {
		t.Error("messages of a topic of others are deleted")
	}
	p.own = true
	if to, ok := p.offsetToDelete(); to != 13 || !ok {
		t.Errorf("messages before %d are deleted (%v), want those before 13", to, ok)
	}
	p.noteDeleted(13)
	if _, ok := p.offsetToDelete(); ok {
		t.Error("messages are deleted again")
	}
	p.noteTaken(13)
	p.noteHandled(13)
	p.noteCommitted(14)
	p.noteTaken(14)
	p.noteHandled(14)
	p.noteTopicGone()
	if to, ok := p.offsetToDelete(); ok {
		t.Errorf("messages before %d are deleted from the topic that has followed", to)
	}
	if to, ok := p.offsetToCommit(); ok {
		t.Errorf("offset %d of a topic that was deleted is committed", to)
	}
}

// So many messages are taken after one that is not handled, and no more until it is.
func TestRoom(t *testing.T) {
	p := &partition{freed: make(chan struct{}, 1)}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for offset := range int64(3) {
		if !p.waitForRoom(ended, 3) {
			t.Fatalf("there is no room for message %d", offset)
		}
		p.noteTaken(offset)
	}
	p.noteHandled(2)
	if p.waitForRoom(ended, 3) {
		t.Error("there is room, and the first message is not handled")
	}
	go p.noteHandled(0)
	if !p.waitForRoom(t.Context(), 3) {
		t.Error("there is no room after the first message was handled")
	}
}

// Each partition has one member that reads its topic, and members have about as many.
func TestBalance(t *testing.T) {
	old := []string{"b", "c", "a"}
	takers := map[string][]string{"orders": old, "retry": old, "return": old, "new": {"c"}}
	all := sharePartitions(takers, map[string][]int{"orders": {2, 0, 1}, "retry": {0}, "return": {0}, "new": {0, 1}})
	seen := map[string]string{}
	for member, topics := range all {
		n := 0
		for topic, ids := range topics {
			for _, id := range ids {
				seen[fmt.Sprint(topic, id)] += member
				n++
			}
		}
		if n < 1 || n > 4 {
			t.Errorf("%s has %d of 7 partitions: %v", member, n, topics)
		}
	}
	if len(seen) != 7 || seen["new0"] != "c" || seen["new1"] != "c" || slices.ContainsFunc(slices.Collect(maps.Values(seen)), func(s string) bool { return len(s) != 1 }) {
		t.Errorf("assigned: %v", seen)
	}
}

// A broker that does not know all partitions yet leaves none of them, and no topic, unread.
func TestUnknownPartitions(t *testing.T) {
	partitions := map[string][]int{"orders": {0}}
	takers := map[string][]string{"orders": {"a", "b"}, "new": {"b"}}
	err := addKnownPartitions(partitions, map[string][]int{"orders": {0, 1}}, takers)
	if err == nil || !strings.Contains(err.Error(), "topic new") || len(partitions["orders"]) != 2 {
		t.Errorf("%v, %v: want both partitions of orders, and an error about the new topic", partitions, err)
	}
	if err := addKnownPartitions(partitions, map[string][]int{"new": {0}}, takers); err != nil || len(partitions["new"]) != 1 {
		t.Errorf("a topic that the member knows: %v, %v", partitions, err)
	}
}

// A process that the group has passed has not lost messages. A batch that is too large says what to
// raise.
func TestJudged(t *testing.T) {
	c := &Consumer{group: "mailer"}
	p := &partition{topic: "orders", id: 1}
	for from, want := range map[int64]string{0: "another process", 1: "1 messages were deleted", 2: "", 3: "", 4: "created again"} {
		err := c.explainOutOfRange(p, from, offsetRange{2, 3}, 1)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("from %d: %v, want %q", from, err, want)
		}
	}
	if err := withLimitHint(fmt.Errorf("read: %w", &kafkaclient.TooLargeError{Limit: 1})); !strings.Contains(err.Error(), "raise MaxInFlightBytes") {
		t.Errorf("got %v", err)
	}
	if err := withLimitHint(errTopicGone); err != errTopicGone { //nolint:errorlint // the very one
		t.Errorf("got %v", err)
	}
}

// TestMain has the examples run where there are servers: in inbox/test/kafka.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("KAFKA_BROKERS") == "" {
		if err := flag.Set("test.run", "^Test"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// A mistake in the configuration is named.
func TestConfig(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://localhost/") // nobody connects
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	given := Config{Brokers: []string{"localhost:9092"}, Topics: []string{"orders"}}
	for _, tc := range []struct {
		change func(*Config)
		want   string
	}{
		{func(cfg *Config) { cfg.Brokers = nil }, "Brokers is empty"},
		{func(cfg *Config) { cfg.Topics = nil }, "Topics is empty"},
		{func(cfg *Config) { cfg.Topics = []string{"a b"} }, `"a b" is not the name of a topic`},
		{func(cfg *Config) { cfg.Topics = []string{"a", "a"} }, "the topic a is named twice"},
		{func(cfg *Config) { cfg.Topics = []string{"a", "mailer.dlq"} }, "mailer.dlq is a topic of the service itself"},
		{func(cfg *Config) { cfg.Topics = []string{"mailer.retry.5m"} }, "a topic of the service itself"},
		{func(cfg *Config) { cfg.Topics = []string{"mailer.return"} }, "a topic of the service itself"},
		{func(cfg *Config) { cfg.Brokers = []string{"kafka://a:9092"} }, `the broker "kafka://a:9092" is not one host:port`},
		{func(cfg *Config) { cfg.Brokers = []string{"b:9092", "a:9092,b:9092"} }, `the broker "a:9092,b:9092" is not one host:port`},
		{func(cfg *Config) { cfg.Brokers = []string{"localhost"} }, `the broker "localhost" is not one host:port`},
		{func(cfg *Config) { cfg.MaxInFlight = -1 }, "is negative"},
		{func(cfg *Config) { cfg.SessionTimeout = time.Millisecond }, "SessionTimeout is 1ms"},
	} {
		in, err := inbox.New(inbox.Config{Service: "mailer", Pool: pool, Handler: func(context.Context, pgx.Tx, inbox.Message) error { return nil }, Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		cfg := given
		tc.change(&cfg)
		if _, err := New(in, cfg); err == nil || !strings.HasPrefix(err.Error(), "kafka: ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
	if _, err := New(nil, given); err == nil {
		t.Error("without an inbox there is no error")
	}
}
