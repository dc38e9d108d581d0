package setting

import (
	"testing"
	"time"
)

// The configuration and the command line read a time span alike, with days.
func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{"7d": 7 * day, "0d": 0, "1d12h": day + 12*time.Hour, "1d1h0.5s": day + time.Hour + 500*time.Millisecond, "90m": 90 * time.Minute, "0": 0, "65535d": 65535 * day} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", s, got, err, want)
		}
	}
	for _, s := range []string{"", "d", "1d-1h", "1d+1h", "-1d", "1.5d", "1dd", "1d 1h", "1h1d", "65536d", "65535d1000000h", "7", "1d7"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q is taken for %s", s, got)
		}
	}
}
