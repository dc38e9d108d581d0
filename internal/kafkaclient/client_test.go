package kafkaclient

import (
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"
)

// said is an answer about one topic: leader and epoch of each partition, or a code.
func said(code int16, leaders ...Leader) *metadata.Response {
	topic := metadata.ResponseTopic{Name: "events", ErrorCode: code}
	for i := len(leaders) - 1; i >= 0; i-- { // in any order
		topic.Partitions = append(topic.Partitions, metadata.ResponsePartition{
			PartitionIndex: int32(i), LeaderID: leaders[i].Node, LeaderEpoch: leaders[i].Epoch,
		})
	}
	return &metadata.Response{
		Brokers: []metadata.ResponseBroker{{NodeID: 1, Host: "one", Port: 9092}, {NodeID: 2, Host: "::1", Port: 9093}},
		Topics:  []metadata.ResponseTopic{topic},
	}
}

func always(*Topic) bool { return true }

// What is known after a series of answers, one second apart.
func TestMetadata(t *testing.T) {
	for name, c := range map[string]struct {
		answers []*metadata.Response
		code    int16
		want    []Leader
	}{
		"first":             {[]*metadata.Response{said(0, Leader{1, 3}, Leader{2, 4})}, 0, []Leader{{1, 3}, {2, 4}}},
		"leader moved":      {[]*metadata.Response{said(0, Leader{1, 3}), said(0, Leader{2, 4})}, 0, []Leader{{2, 4}}},
		"older answer":      {[]*metadata.Response{said(0, Leader{2, 4}), said(0, Leader{1, 3})}, 0, []Leader{{2, 4}}},
		"older, then newer": {[]*metadata.Response{said(0, Leader{2, 4}), said(0, Leader{1, 3}), said(0, Leader{1, 5})}, 0, []Leader{{1, 5}}},
		"older goes on":     {[]*metadata.Response{said(0, Leader{2, 4}), said(0, Leader{1, 0}), said(0, Leader{1, 0}), said(0, Leader{1, 0})}, 0, []Leader{{1, 0}}},
		"no epochs":         {[]*metadata.Response{said(0, Leader{2, None}), said(0, Leader{1, None})}, 0, []Leader{{1, None}}},
		"more partitions":   {[]*metadata.Response{said(0, Leader{1, 3}), said(0, Leader{1, 3}, Leader{2, 0})}, 0, []Leader{{1, 3}, {2, 0}}},
		"fewer partitions":  {[]*metadata.Response{said(0, Leader{1, 3}, Leader{2, 0}), said(0, Leader{1, 3})}, 0, []Leader{{1, 3}, {2, 0}}},
		"fewer partitions for long": {[]*metadata.Response{
			said(0, Leader{1, 3}, Leader{2, 0}), said(0, Leader{1, 3}), said(0, Leader{1, 3}), said(0, Leader{1, 3}),
		}, 0, []Leader{{1, 3}}},
		"no leader":        {[]*metadata.Response{said(0, Leader{1, 3}), said(0, Leader{None, 4})}, 0, []Leader{{None, 4}}},
		"a leader of -7":   {[]*metadata.Response{said(0, Leader{-7, 4})}, 0, []Leader{{None, 4}}},
		"unknown":          {[]*metadata.Response{said(0, Leader{1, 3}), said(3)}, 3, nil},
		"re-created":       {[]*metadata.Response{said(0, Leader{1, 3}), said(3), said(0, Leader{2, 0})}, 0, []Leader{{2, 0}}},
		"without anything": {[]*metadata.Response{said(0)}, 5, nil},
	} {
		t.Run(name, func(t *testing.T) {
			known, now := NewMetadata(), time.Now()
			for _, answer := range c.answers {
				now = now.Add(time.Second)
				known = known.Merge(answer, always, now)
			}
			topic := known.Topics["events"]
			if topic.Code != c.code || fmt.Sprint(topic.Partitions) != fmt.Sprint(c.want) || topic.Name != "events" {
				t.Errorf("%+v, want %d %v", topic, c.code, c.want)
			}
			if topic.Version != known.Version || known.Version != int64(len(c.answers)) {
				t.Errorf("version %d of %d", topic.Version, known.Version)
			}
			if known.Brokers[1] != "one:9092" || known.Brokers[2] != "[::1]:9093" {
				t.Errorf("brokers %v", known.Brokers)
			}
		})
	}
}

// Of topics that an answer does not speak of, and of brokers when it names none, what was known
// stays.
func TestMetadataOfOthers(t *testing.T) {
	known := NewMetadata().Merge(said(0, Leader{1, 3}), always, time.Now())
	other := &metadata.Response{Topics: []metadata.ResponseTopic{{Name: "other", ErrorCode: 3}}}
	next := known.Merge(other, always, time.Now())
	if l, ok := next.Leader("events", 0); !ok || l != (Leader{1, 3}) || len(next.Brokers) != 2 {
		t.Errorf("%+v", next)
	}
	if _, ok := next.Leader("events", 1); ok {
		t.Error("a leader of no partition")
	}
	if !next.leads(1) || next.leads(2) {
		t.Error("1 leads, 2 does not")
	}
	if next = next.Merge(said(0, Leader{1, 3}), func(*Topic) bool { return false }, time.Now()); len(next.Topics) != 1 {
		t.Errorf("%v", next.Topics)
	}
}

// What one request carries.
func TestPick(t *testing.T) {
	of := func(sizes ...int) (all []*ProducerBatch) {
		for i, size := range sizes {
			all = append(all, &ProducerBatch{Topic: "events", Partition: int32(i), Bytes: make([]byte, size)})
		}
		return all
	}
	twins := append(of(1, 1), of(1, 1, 1)...) // partitions 0 1 0 1 2
	for name, c := range map[string]struct {
		queue []*ProducerBatch
		want  []int // how many in each request
	}{
		"all":         {of(10, 20, 30), []int{3}},
		"bytes":       {of(MaxRequest/2, MaxRequest/2, 1, 1), []int{2, 2}},
		"one larger":  {of(MaxRequest+1, 1, 1), []int{1, 2}},
		"larger last": {of(1, MaxRequest+1, 1), []int{2, 1}},
		"count":       {of(make([]int, maxParts+3)...), []int{maxParts, 3}},
		"partitions":  {twins, []int{3, 2}},
		"nothing":     {nil, nil},
	} {
		queue := append([]*ProducerBatch(nil), c.queue...)
		var got []int
		seen := map[*ProducerBatch]bool{}
		for len(queue) > 0 {
			var parts []*ProducerBatch
			queue, parts = pickBatches(queue, nil)
			got = append(got, len(parts))
			for _, s := range parts {
				if seen[s] {
					t.Errorf("%s: twice in a request", name)
				}
				seen[s] = true
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) || len(seen) != len(c.queue) {
			t.Errorf("%s: requests of %v, want %v", name, got, c.want)
		}
	}
}

// Where metadata takes longer than the pause between its questions, it does not starve the ids
// either.
func TestMetadataDoesNotStarveIds(t *testing.T) {
	c, now := NewClient(Options{Brokers: []string{"1:9092"}}).Control, time.Now()
	for range 3 {
		c.Identify(&ProducerBatch{})
	}
	var ids, metadata int
	for range 6 {
		c.RequestMetadata("events")
		s, topics, _ := c.nextQuestion(now)
		if s != nil {
			ids++
		}
		if topics != nil {
			metadata++
		}
		now = now.Add(2 * AskEvery)
	}
	if ids != 3 || metadata != 3 {
		t.Errorf("%d ids, %d times metadata", ids, metadata)
	}
}
