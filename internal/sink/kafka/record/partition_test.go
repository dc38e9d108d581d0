package record

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/kafkatest"
)

// TestUnorderedAreSpread has NULL and empty keys on all partitions, and on the same one at every
// delivery.
func TestUnorderedAreSpread(t *testing.T) {
	l := layoutOf(t, Config{})
	for name, key := range map[string][]byte{"NULL": nil, "empty": {}} {
		var hits [12]int
		for i := range 12_000 {
			ev := kafkatest.Event(i, "")
			ev.Key = key
			p := partitionOf(l, ev, 12)
			if again := partitionOf(l, ev, 12); again != p {
				t.Fatalf("%s: partition %d, then %d", name, p, again)
			}
			hits[p]++
		}
		for p, n := range hits {
			if n < 500 || n > 1500 {
				t.Errorf("%s: %d of 12,000 events on partition %d of 12", name, n, p)
			}
		}
	}
}
