package kafka

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
)

// Each partition has one member that reads its topic, and members have about as many.
func TestBalance(t *testing.T) {
	var partitions []kafkago.Partition
	for topic, n := range map[string]int{"orders": 3, "retry": 1, "return": 1, "new": 2} {
		for id := range n {
			partitions = append(partitions, kafkago.Partition{Topic: topic, ID: id})
		}
	}
	old := []string{"orders", "retry", "return"}
	members := []kafkago.GroupMember{{ID: "b", Topics: old}, {ID: "c", Topics: append([]string{"new"}, old...)}, {ID: "a", Topics: old}}
	var incomplete atomic.Bool
	b := balancer{map[string][]int{"orders": {0, 1, 2}, "retry": {0}, "return": {0}}, &incomplete}
	all := b.AssignGroups(members, partitions)
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
	if incomplete.Load() {
		t.Error("nothing is missing, and it says so")
	}
	for _, missing := range []kafkago.Partition{{Topic: "orders", ID: 2}, {Topic: "new", ID: 0}} {
		incomplete.Store(false)
		b.AssignGroups(members, slices.DeleteFunc(slices.Clone(partitions), func(p kafkago.Partition) bool { return p.Topic == missing.Topic && p.ID >= missing.ID }))
		if !incomplete.Load() {
			t.Errorf("partitions of %s from %d on are missing, and it is not noticed", missing.Topic, missing.ID)
		}
	}
}
