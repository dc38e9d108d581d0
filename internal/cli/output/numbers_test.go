package output

import (
	"testing"
	"time"
)

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{-1: "-1 B", 0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1 << 20: "1.0 MiB", 1<<63 - 1: "8.0 EiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("showBytes(%d) = %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 300 * time.Millisecond: "0.3s", 42 * time.Second: "42s", 307 * time.Second: "5m7s",
		182 * time.Minute: "3h2m", 101 * time.Hour: "4d5h",
	} {
		if got := Age(d); got != want {
			t.Errorf("showAge(%d) = %s, want %s", d, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := Thousands(n); got != want {
			t.Errorf("thousands(%d) = %s, want %s", n, got, want)
		}
	}
}
