package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// compareResult is what compare debezium --json prints.
type compareResult struct {
	Compared, Equal int64
	Differences     map[string]int64
	First           []struct {
		Kind, ID, Name, Only string
		Byte                 int
		Lengths              *[2]int
		Excerpts             *[2]string
	}
	LeftOut struct {
		ContextHeaders int64 `json:"context_headers"`
		SchemaNames    int64 `json:"value_schema_names"`
		Times          int64
		Partitions     int64 `json:"partitions_without_key"`
	} `json:"left_out"`
	Theirs, Ours struct{ Messages, Duplicates, NotCounted int64 }
	Notes        []string
	Interrupted  bool
}

// whatDiffers are the ids and kinds, sorted.
func (r *compareResult) whatDiffers() (all []string) {
	for _, d := range r.First {
		all = append(all, strings.Join(strings.Fields(d.ID+" "+d.Kind+" "+d.Name+" "+d.Only), " "))
	}
	slices.Sort(all)
	return all
}

// compareDebezium runs the command with --json and its configuration, if it has any.
func compareDebezium(t *testing.T, config string, code int, args ...string) (compareResult, devenv.Result) {
	t.Helper()
	res, err := devenv.RunCommand(within(t, bound), devenv.BuildRelay(t), config, append([]string{"compare", "debezium", "--json", "--limit", "100"}, args...)...)
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
	kafka        *devenv.Kafka
	theirs, ours string
}

func newSameTopics(t *testing.T, partitions int) *sameTopics {
	k := devenv.SharedKafka(t)
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
	must(s.t, w.WriteMessages(within(s.t, bound), records...))
	must(s.t, w.Close())
}

func (s *sameTopics) compare(code int, args ...string) compareResult {
	s.t.Helper()
	out, _ := compareDebezium(s.t, "", code, append([]string{
		"--kafka", strings.Join(s.kafka.Brokers(), ","), "--theirs", s.theirs, "--ours", s.ours, "--from", "beginning", "--lag", "1s",
	}, args...)...)
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

// Two topics that are the same to a consumer: what is repeated, of another run of Debezium, large, null or without a key does not
// differ.
func TestCompareEqualTopics(t *testing.T) {
	t.Parallel()
	s := newSameTopics(t, 3)
	records := func(run string) []kafkago.Message {
		tombstone := record(1, "tombstone", "k1", "")
		tombstone.Value = nil
		keyless := record(0, "keyless", "", "v")
		keyless.Key = nil
		all := []kafkago.Message{
			tombstone, keyless, record(2, "empty", "k2", ""), record(2, "large", "k2", strings.Repeat("0123456789", 90_000)),
			record(0, "envelope", "k3", `{"schema":{"type":"struct","optional":false,"name":"shop.public.outbox.`+run+`.Value"},"payload":{"payload":"x"}}`),
		}
		for i := range 2000 {
			all = append(all, record(i%3, fmt.Sprint("e", i), fmt.Sprint("k", i%3), fmt.Sprint(i), "__debezium.context.runId", run, "eventType", "created"))
		}
		return all
	}
	theirs, ours := records("theirs"), records("ours")
	s.write(s.theirs, theirs...)
	s.write(s.theirs, theirs[1990:]...) // Debezium was killed and started again
	ours[1].WriterData = 2              // a record without a key goes anywhere
	s.write(s.ours, ours...)
	got := s.compare(0)
	if got.Compared != 2005 || got.Equal != 2005 || got.Theirs.Messages != 2020 || got.Theirs.Duplicates != 15 || got.Ours.Duplicates != 0 ||
		got.LeftOut.ContextHeaders != 2000 || got.LeftOut.SchemaNames != 1 || got.LeftOut.Partitions != 1 || len(got.First) > 0 {
		t.Errorf("%+v", got)
	}
	strictly := s.compare(1, "--strict", "--count", "2005")
	if strictly.Differences["header"] != 2000 || strictly.Differences["value"] != 1 || strictly.Differences["partition"] != 1 {
		t.Errorf("strictly: %v", strictly.Differences)
	}
	if again := s.compare(1, "--from", "24h", "--ignore-header", "__debezium.context.runId", "--strict"); again.Compared != 2005 || again.Differences["header"] != 0 {
		t.Errorf("from yesterday on: %+v", again)
	}
}

// Each kind of difference between two topics is found, at its event and its byte, and nothing else is.
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
	order := "first order"
	for _, d := range got.First {
		if d.Kind == "order" && d.ID == "second" {
			order = "second order" // whichever was paired last
		}
	}
	want := []string{
		"extra-header header cdc_position ours", "gone missing theirs", "header header type", "headers order of headers", "key key", "new missing ours", "null value", //nolint:dupword // ids, kinds and names
		"partition partition", order, "value value", //nolint:dupword // ids, kinds and names
	}
	if slices.Sort(want); !slices.Equal(got.whatDiffers(), want) {
		t.Errorf("%q, want %q", got.whatDiffers(), want)
	}
	for _, d := range got.First {
		if d.ID == "value" && (d.Byte != 20 || !strings.Contains(d.Excerpts[0], "tulip") || !strings.Contains(d.Excerpts[1], "roses")) {
			t.Errorf("the value differs at %+v", d)
		}
		if d.ID == "null" && *d.Lengths != [2]int{-1, 0} {
			t.Errorf("null and empty: %+v", d)
		}
	}
}

// What a person reads says which event, what, from which byte on and where; with admin.show_payloads: false nothing of contents.
func TestCompareInWords(t *testing.T) {
	t.Parallel()
	s := newSameTopics(t, 1)
	s.write(s.theirs, record(0, "e1", "k", `{"name": "tulip"}`, "tenant", "tulip"), record(0, "e2", "k", "v"))
	s.write(s.ours, record(0, "e1", "k", `{"name": "roses"}`, "tenant", "roses"), record(0, "e2", "k", "v"))
	brokers := strings.Join(s.kafka.Brokers(), ",")
	config := "source: {url: postgres://nobody@nowhere/none}\nsink: {kafka: {brokers: ['" + brokers + "']}}\n"
	args := []string{"compare", "debezium", "--theirs", s.theirs, "--ours", s.ours, "--from", "beginning", "--lag", "1s"}
	res, err := devenv.RunCommand(within(t, bound), devenv.BuildRelay(t), config, args...)
	must(t, err)
	refusal(t, res, 1, "2 differences in 2 compared events")
	for _, want := range []string{
		"e1 value: differs from byte 10 on (theirs 17 bytes, ours 17)", "tulip", "roses", "    theirs " + s.theirs + ", partition 0, offset 0\n", `e1 header "tenant"`,
		"compared     2 events: 1 equal, 1 not\n", "differences  value: 1\n", "theirs       2 messages, 0 again\n",
	} {
		if !strings.Contains(res.Stdout, want) {
			t.Errorf("it does not say %q:\n%s", want, res.Stdout)
		}
	}
	for _, hidden := range []struct {
		config string
		more   []string
	}{{config + "admin: {show_payloads: false}\n", nil}, {config, []string{"--excerpts=false"}}, {config + "admin: {show_payloads: false}\n", []string{"--json", "--excerpts"}}} {
		res, err := devenv.RunCommand(within(t, bound), devenv.BuildRelay(t), hidden.config, append(args[:len(args):len(args)], hidden.more...)...)
		must(t, err)
		if res.Code != 1 || !strings.Contains(res.Stdout, "e1") || strings.Contains(res.Stdout+res.Stderr, "tulip") || strings.Contains(res.Stdout+res.Stderr, "roses") {
			t.Errorf("%v, exit %d:\n%s", hidden.more, res.Code, res.Stdout)
		}
	}
}

// A bound on what is held is kept: what can not be paired within it is given up and missing, and the rest is compared.
func TestCompareHoldsAtMost(t *testing.T) {
	t.Parallel()
	s := newSameTopics(t, 1)
	large := strings.Repeat("x", 512<<10)
	var theirs []kafkago.Message
	for i := range 8 {
		theirs = append(theirs, record(0, fmt.Sprint("lost", i), "k", large))
	}
	s.write(s.theirs, append(theirs, record(0, "last", "k", "v"))...)
	s.write(s.ours, record(0, "last", "k", "v"))
	got := s.compare(1, "--memory", "1", "--count", "1")
	if got.Compared != 1 || got.Differences["missing"] != 8 || got.Theirs.NotCounted != 0 {
		t.Errorf("%+v", got)
	}
}

// What can not be compared is said: no events, topics of different numbers of partitions, a topic or broker that is not there, flags that
// contradict each other.
func TestCompareRefuses(t *testing.T) {
	t.Parallel()
	s := newSameTopics(t, 1)
	brokers := strings.Join(s.kafka.Brokers(), ",")
	run := func(config string, args ...string) devenv.Result {
		res, err := devenv.RunCommand(within(t, bound), devenv.BuildRelay(t), config, append([]string{"compare", "debezium"}, args...)...)
		must(t, err)
		return res
	}
	pair := []string{"--theirs", s.theirs, "--ours", s.ours}
	kafka := append([]string{"--kafka", brokers}, pair...)
	refusal(t, run("", append(kafka, "--from", "beginning", "--lag", "1s")...), 1, "no event was compared", "--id-header")
	refusal(t, run("", "--kafka", brokers, "--theirs", s.theirs, "--ours", "not-there"), 1, "open ours", "not-there")
	refusal(t, run("", append(pair, "--kafka", "127.0.0.1:1")...), 1, "open theirs", "127.0.0.1:1")
	for _, c := range []struct {
		args  []string
		words string
	}{
		{append(kafka, "--rabbitmq", "amqp://localhost/"), "which of them"},
		{append(kafka, "--theirs", "more"), "there are 2 and 1"},
		{append(kafka, "--from", "yesterday"), "--from yesterday: want now, beginning, a time"},
		{append(kafka, "--lag", "0s"), "--lag"},
		{[]string{"--kafka", brokers, "--theirs", "a", "--ours", "a"}, `"a" is theirs and ours`},
		{[]string{"--kafka", brokers, "--theirs", "a", "--ours", ""}, "a topic has a name"},
		{[]string{"--kafka", brokers, "--theirs", "a", "--ours", "b", "--theirs", "c", "--ours", "b"}, "stands in a pair already"},
		{append([]string{"--rabbitmq", "amqp://localhost/", "--from", "beginning"}, pair...), "--from now"},
	} {
		refusal(t, run("", c.args...), 2, c.words)
	}
	refusal(t, run("source: {url: postgres://h/d}\nsink: {stdout: {}}\n", pair...), 2, "name the broker")

	other := s.kafka.Topic(t, 2)
	s.write(s.theirs, record(0, "e", "k", "v"))
	s.write(other, record(1, "e", "k", "v"))
	s.ours = other
	if got := s.compare(0); len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "partitions are not compared") || got.Equal != 1 {
		t.Errorf("%+v", got)
	}
}

// Several pairs of topics: an event that lies in the topic of another pair is a difference.
func TestComparePairsOfTopics(t *testing.T) {
	t.Parallel()
	s, other := newSameTopics(t, 1), newSameTopics(t, 1)
	s.write(s.theirs, record(0, "e1", "k", "v"), record(0, "e2", "k", "v"))
	s.write(s.ours, record(0, "e1", "k", "v"))
	other.write(other.theirs, record(0, "e3", "k", "v"))
	other.write(other.ours, record(0, "e2", "k", "v"), record(0, "e3", "k", "v"))
	got := s.compare(1, "--theirs", other.theirs, "--ours", other.ours)
	if !slices.Equal(got.whatDiffers(), []string{"e2 topic"}) || got.Compared != 3 {
		t.Errorf("%+v", got)
	}
}
