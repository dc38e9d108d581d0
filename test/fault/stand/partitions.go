// Which partition of a topic an event belongs in.

package stand

import (
	"cmp"
	"slices"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
)

// JavaPartition is where Kafka's own producer puts a key.
func JavaPartition(key string, count int) int {
	all := make([]int, count)
	for i := range all {
		all[i] = i
	}
	return (&kafkago.Murmur2Balancer{Consistent: true}).Balance(kafkago.Message{Key: []byte(key)}, all...)
}

// WentBy checks that the events of each key went where Java's producer would put them by one of
// these counts of partitions, and by none after a later one: a key leaves a partition for good. It
// returns how many keys have left one.
func (s *Stand) WentBy(counts ...int) (left int) {
	s.T.Helper()
	byKey := map[string][]checker.Delivery{}
	for _, d := range s.Consumer.Deliveries() {
		byKey[d.Key] = append(byKey[d.Key], d)
	}
	for key, events := range byKey {
		slices.SortFunc(events, func(a, b checker.Delivery) int { return cmp.Compare(a.Seq, b.Seq) })
		at := 0
		for i, d := range events {
			for at < len(counts) && JavaPartition(key, counts[at]) != d.From.Partition {
				at++
			}
			if at == len(counts) {
				s.T.Fatalf("event %d of key %s is in partition %d, after %d events by another count", d.Seq, key, d.From.Partition, i)
			}
		}
		if at > 0 {
			left++
		}
	}
	return left
}
