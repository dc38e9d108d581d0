package batch

import (
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"pgregory.net/rapid"
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
		if got := int32(Murmur2([]byte(key))); got != want {
			t.Errorf("%s: got %d, want %d", key, got, want)
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
		if got := Partition(key, count); got != int32(want) {
			t.Errorf("got %d, want %d", got, want)
		}
	})
}
