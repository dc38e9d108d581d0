// Which member of the group gets which partition.

package kafka

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	kafkago "github.com/segmentio/kafka-go"
)

// balancer gives each member of the group as many partitions as the others, over all topics. Those
// of kafka-go begin with the same member in each topic.
type balancer struct {
	// known are the partitions of the topics that this member has asked for. The topics that only
	// others have asked for exist, too.
	known map[string][]int
	// incomplete is set when there are fewer partitions: kafka-go has asked a broker that did not
	// know all of them yet, and would never come back to the others.
	incomplete *atomic.Bool
}

func (balancer) ProtocolName() string      { return "cdc-relay-inbox" }
func (balancer) UserData() ([]byte, error) { return nil, nil }

// AssignGroups is called in one of the members.
func (b balancer) AssignGroups(members []kafkago.GroupMember, partitions []kafkago.Partition) kafkago.GroupMemberAssignments {
	slices.SortFunc(members, func(x, y kafkago.GroupMember) int { return cmp.Compare(x.ID, y.ID) })
	of := map[string][]int{} // partitions of a topic
	for _, p := range partitions {
		of[p.Topic] = append(of[p.Topic], p.ID)
	}
	all := kafkago.GroupMemberAssignments{}
	takers := map[string][]string{} // members that read a topic
	for _, m := range members {
		all[m.ID] = map[string][]int{}
		for _, topic := range m.Topics {
			takers[topic] = append(takers[topic], m.ID)
		}
	}
	next := 0
	for _, topic := range slices.Sorted(maps.Keys(takers)) {
		if len(of[topic]) < max(len(b.known[topic]), 1) {
			b.incomplete.Store(true)
		}
		slices.Sort(of[topic])
		for _, id := range of[topic] {
			member := takers[topic][next%len(takers[topic])]
			all[member][topic] = append(all[member][topic], id)
			next++
		}
	}
	return all
}
