package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"
)

// said is an answer about one topic: leader and epoch of each partition, or a code.
func said(code int16, leaders ...leader) *metadata.Response {
	topic := metadata.ResponseTopic{Name: "events", ErrorCode: code}
	for i := len(leaders) - 1; i >= 0; i-- { // in any order
		topic.Partitions = append(topic.Partitions, metadata.ResponsePartition{
			PartitionIndex: int32(i), LeaderID: leaders[i].node, LeaderEpoch: leaders[i].epoch,
		})
	}
	return &metadata.Response{
		Brokers: []metadata.ResponseBroker{{NodeID: 1, Host: "one", Port: 9092}, {NodeID: 2, Host: "::1", Port: 9093}},
		Topics:  []metadata.ResponseTopic{topic},
	}
}

func always(*topicState) bool { return true }

// What is known after a series of answers, one second apart.
func TestMetadata(t *testing.T) {
	for name, c := range map[string]struct {
		answers []*metadata.Response
		code    int16
		want    []leader
	}{
		"first":             {[]*metadata.Response{said(0, leader{1, 3}, leader{2, 4})}, 0, []leader{{1, 3}, {2, 4}}},
		"leader moved":      {[]*metadata.Response{said(0, leader{1, 3}), said(0, leader{2, 4})}, 0, []leader{{2, 4}}},
		"older answer":      {[]*metadata.Response{said(0, leader{2, 4}), said(0, leader{1, 3})}, 0, []leader{{2, 4}}},
		"older, then newer": {[]*metadata.Response{said(0, leader{2, 4}), said(0, leader{1, 3}), said(0, leader{1, 5})}, 0, []leader{{1, 5}}},
		"older goes on":     {[]*metadata.Response{said(0, leader{2, 4}), said(0, leader{1, 0}), said(0, leader{1, 0}), said(0, leader{1, 0})}, 0, []leader{{1, 0}}},
		"no epochs":         {[]*metadata.Response{said(0, leader{2, none}), said(0, leader{1, none})}, 0, []leader{{1, none}}},
		"more partitions":   {[]*metadata.Response{said(0, leader{1, 3}), said(0, leader{1, 3}, leader{2, 0})}, 0, []leader{{1, 3}, {2, 0}}},
		"fewer partitions":  {[]*metadata.Response{said(0, leader{1, 3}, leader{2, 0}), said(0, leader{1, 3})}, 0, []leader{{1, 3}, {2, 0}}},
		"fewer partitions for long": {[]*metadata.Response{
			said(0, leader{1, 3}, leader{2, 0}), said(0, leader{1, 3}), said(0, leader{1, 3}), said(0, leader{1, 3}),
		}, 0, []leader{{1, 3}}},
		"no leader":        {[]*metadata.Response{said(0, leader{1, 3}), said(0, leader{none, 4})}, 0, []leader{{none, 4}}},
		"a leader of -7":   {[]*metadata.Response{said(0, leader{-7, 4})}, 0, []leader{{none, 4}}},
		"unknown":          {[]*metadata.Response{said(0, leader{1, 3}), said(3)}, 3, nil},
		"made anew":        {[]*metadata.Response{said(0, leader{1, 3}), said(3), said(0, leader{2, 0})}, 0, []leader{{2, 0}}},
		"without anything": {[]*metadata.Response{said(0)}, 5, nil},
	} {
		t.Run(name, func(t *testing.T) {
			known, now := newSnapshot(), time.Now()
			for _, answer := range c.answers {
				now = now.Add(time.Second)
				known = known.merge(answer, always, now)
			}
			topic := known.topics["events"]
			if topic.code != c.code || fmt.Sprint(topic.partitions) != fmt.Sprint(c.want) || topic.name != "events" {
				t.Errorf("%+v, want %d %v", topic, c.code, c.want)
			}
			if topic.version != known.version || known.version != int64(len(c.answers)) {
				t.Errorf("version %d of %d", topic.version, known.version)
			}
			if known.brokers[1] != "one:9092" || known.brokers[2] != "[::1]:9093" {
				t.Errorf("brokers %v", known.brokers)
			}
		})
	}
}

// Of topics that an answer does not speak of, and of brokers when it names none, what was known stays.
func TestMetadataOfOthers(t *testing.T) {
	known := newSnapshot().merge(said(0, leader{1, 3}), always, time.Now())
	other := &metadata.Response{Topics: []metadata.ResponseTopic{{Name: "other", ErrorCode: 3}}}
	next := known.merge(other, always, time.Now())
	if l, ok := next.leader("events", 0); !ok || l != (leader{1, 3}) || len(next.brokers) != 2 {
		t.Errorf("%+v", next)
	}
	if _, ok := next.leader("events", 1); ok {
		t.Error("a leader of no partition")
	}
	if !next.leads(1) || next.leads(2) {
		t.Error("1 leads, 2 does not")
	}
	if next = next.merge(said(0, leader{1, 3}), func(*topicState) bool { return false }, time.Now()); len(next.topics) != 1 {
		t.Errorf("%v", next.topics)
	}
}

func TestLimit(t *testing.T) {
	var l limit
	for _, step := range []struct {
		do   func()
		next int
	}{
		{func() {}, ordinaryBatch},
		{func() { l.stored(500) }, ordinaryBatch},
		{func() { l.tooLarge(100_000) }, 50_000},
		{func() { l.stored(50_000) }, 50_000},
		{func() { l.stored(60_000) }, 60_000},   // one record
		{func() { l.tooLarge(80_000) }, 60_000}, // what was stored is tried first
		{func() { l.tooLarge(59_000) }, 29_500}, // the setting was lowered
		{func() { l.tooLarge(29_000) }, 14_500},
		{func() { l.stored(200_000) }, ordinaryBatch}, // one record: the setting was raised
		{func() { l.tooLarge(8_000_000) }, ordinaryBatch},
	} {
		if step.do(); l.next() != step.next {
			t.Errorf("%+v: the next batch has up to %d bytes, want %d", l, l.next(), step.next)
		}
	}
}
