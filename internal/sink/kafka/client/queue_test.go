package client

import (
	"fmt"
	"testing"
)

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
			queue, parts = pick(queue, nil)
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
