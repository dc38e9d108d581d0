package kafka

import (
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// TestMurmur2 has the vectors of Kafka's UtilsTest, and some that its producer was seen to make.
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc":        479470107,
		"10711fa5":   -452740149,
		`"10711fa5"`: 1035007959,
		`{"schema":{"type":"string","optional":false},"payload":"10711fa5"}`: 1003484787,
		"1":   -1993445489,
		`"1"`: 2141072032,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("%s: got %d, want %d", key, got, want)
		}
	}
}

func TestPartitionOfKey(t *testing.T) {
	for key, want := range map[string][3]int32{
		"10711fa5": {2, 5, 11}, `"10711fa5"`: {0, 3, 3}, "1": {0, 3, 3}, `"1"`: {1, 4, 4},
	} {
		for i, count := range []int32{3, 6, 12} {
			if got := partitionOf(someEvent(1, key), count); got != want[i] {
				t.Errorf("%s of %d: got %d, want %d", key, count, got, want[i])
			}
		}
	}
}

func TestPartitionIsThatOfKafkaGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key")
		count := rapid.Int32Range(1, 2000).Draw(t, "count")
		all := make([]int, count)
		for i := range all {
			all[i] = i
		}
		want := kafkago.Murmur2Balancer{Consistent: true}.Balance(kafkago.Message{Key: key}, all...)
		if got := partitionOf(&outbox.Event{Key: key}, count); got != int32(want) {
			t.Errorf("got %d, want %d", got, want)
		}
	})
}

// TestUnorderedAreSpread has NULL and empty keys on all partitions, and on the same one at every delivery.
func TestUnorderedAreSpread(t *testing.T) {
	for name, key := range map[string][]byte{"NULL": nil, "empty": {}} {
		var hits [12]int
		for i := range 12_000 {
			ev := someEvent(i, "")
			ev.Key = key
			p := partitionOf(ev, 12)
			if again := partitionOf(ev, 12); again != p {
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
