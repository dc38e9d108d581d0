package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// compareResult is what compare debezium --json prints.
type compareResult struct {
	Compared, Equal      int64
	Differences          map[string]int64
	First                []struct{ Kind, ID, Name, Only, Text string }
	Messages, Duplicates [2]int64 // theirs, ours
	NotCounted           [2]int64 `json:"not_counted"`
	Interrupted          bool
}

// whatDiffers are the ids and kinds, sorted.
func (r *compareResult) whatDiffers() (all []string) {
	for _, d := range r.First {
		all = append(all, strings.Join(strings.Fields(d.ID+" "+d.Kind+" "+d.Name+" "+d.Only), " "))
	}
	slices.Sort(all)
	return all
}

// compareDebezium runs the command with --json.
func compareDebezium(t *testing.T, config string, code int, args ...string) (compareResult, runner.Result) {
	t.Helper()
	res, err := runner.RunCommand(await.Context(t), runner.Build(t), config, append([]string{"compare", "debezium", "--json"}, args...)...)
	must(t, err)
	var out compareResult
	if err := json.Unmarshal([]byte(res.Stdout), &out); err != nil || res.Code != code {
		t.Fatalf("exit %d, want %d: %s%s", res.Code, code, res.Stdout, res.Stderr)
	}
	return out, res
}

// sameTopics is two topics, and what was written to both.
type sameTopics struct {
	t            *testing.T
	kafka        *kafkaserver.Kafka
	theirs, ours string
}

func newSameTopics(t *testing.T, partitions int) *sameTopics {
	k := servers.SharedKafka(t)
	return &sameTopics{t, k, k.Topic(t, partitions), k.Topic(t, partitions)}
}

// write appends records to a topic, each to its partition, in order.
func (s *sameTopics) write(topic string, records ...kafkago.Message) {
	s.t.Helper()
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafkago.Writer{
		Addr: kafkago.TCP(s.kafka.Brokers()...), Topic: topic, RequiredAcks: kafkago.RequireAll, BatchTimeout: time.Millisecond, BatchBytes: 1 << 20,
		Transport: transport, Balancer: kafkago.BalancerFunc(func(m kafkago.Message, _ ...int) int { return m.WriterData.(int) }),
	}
	must(s.t, w.WriteMessages(await.Context(s.t), records...))
	must(s.t, w.Close())
}

func (s *sameTopics) config() string { return kafkaConfig(s.kafka.Brokers()...) }

// kafkaConfig is a configuration that names brokers and nothing else.
func kafkaConfig(brokers ...string) string {
	return "source: {url: postgres://nobody@nowhere/none}\nsink: {kafka: {brokers: ['" + strings.Join(brokers, "', '") + "']}}\n"
}

func (s *sameTopics) compare(code int, args ...string) compareResult {
	s.t.Helper()
	out, _ := compareDebezium(s.t, s.config(), code, append([]string{"--theirs", s.theirs, "--ours", s.ours, "--from", "beginning", "--lag", "1s"}, args...)...)
	return out
}

// record is one as Debezium in Kafka Connect writes it.
func record(partition int, id, key, value string, headers ...string) kafkago.Message {
	m := kafkago.Message{Key: []byte(key), Value: []byte(value), WriterData: partition, Headers: []kafkago.Header{{Key: "id", Value: []byte(id)}}}
	for i := 0; i < len(headers); i += 2 {
		m.Headers = append(m.Headers, kafkago.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return m
}

// Each kind of difference between two topics is found, at its event and its byte, and nothing else
// is.
func TestCompareTopics(t *testing.T) {
	t.Parallel()
	s := newSameTopics(t, 3)
	null := record(0, "null", "n", "")
	null.Value = nil
	s.write(s.theirs,
		record(0, "fine", "k", "v"), record(0, "partition", "p", "v"), record(0, "key", "a", "v"), record(0, "value", "k", `{"a": 1, "secret": "tulip"}`),
		record(0, "header", "k", "v", "type", "created"), record(0, "headers", "k", "v", "a", "1", "b", "2"), null,
		record(0, "gone", "g", "v"), record(0, "extra-header", "k", "v"), record(1, "first", "order", "v"), record(1, "second", "order", "v"),
	)
	s.write(s.ours,
		record(0, "fine", "k", "v"), record(2, "partition", "p", "v"), record(0, "key", "b", "v"), record(0, "value", "k", `{"a": 1, "secret": "roses"}`),
		record(0, "header", "k", "v", "type", "Created"), record(0, "headers", "k", "v", "b", "2", "a", "1"), record(0, "null", "n", ""),
		record(0, "new", "g", "v"), record(0, "extra-header", "k", "v", "cdc_position", "1"), record(1, "second", "order", "v"), record(1, "first", "order", "v"),
	)
	got := s.compare(1)
	want := []string{
		"extra-header header cdc_position ours", "gone missing theirs", "header header type", "headers order of headers", "key key", "new missing ours", "null value", //nolint:dupword // ids, kinds and names
		"partition partition", "second order", "value value", //nolint:dupword // ids, kinds and names
	}
	if slices.Sort(want); !slices.Equal(got.whatDiffers(), want) {
		t.Errorf("%q, want %q", got.whatDiffers(), want)
	}
	for _, d := range got.First {
		if d.ID == "value" && (!strings.Contains(d.Text, "from byte 20 on") || !strings.Contains(d.Text, "tulip") || !strings.Contains(d.Text, "roses")) {
			t.Errorf("the value differs at %+v", d)
		}
		if d.ID == "null" && !strings.HasPrefix(d.Text, "theirs is null, ours has 0 bytes") {
			t.Errorf("null and empty: %+v", d)
		}
	}
}

// What cannot be compared is said: no events, a topic or broker that is not there. TestUsageErrors
// of cmd/cdc-relay has flags that contradict each other.
func TestCompareRefuses(t *testing.T) {
	t.Parallel()
	s := newSameTopics(t, 1)
	run := func(config string, args ...string) runner.Result {
		res, err := runner.RunCommand(await.Context(t), runner.Build(t), config, append([]string{"compare", "debezium"}, args...)...)
		must(t, err)
		return res
	}
	pair := []string{"--theirs", s.theirs, "--ours", s.ours}
	refusal(t, run(s.config(), append(pair, "--from", "beginning", "--count", "5", "--lag", "1s")...), 1, "no event was compared", "--id-header")
	refusal(t, run(s.config(), "--theirs", s.theirs, "--ours", "not-there"), 1, "open ours", "not-there")
	refusal(t, run(kafkaConfig("127.0.0.1:1"), pair...), 1, "open theirs", "127.0.0.1:1")
}
