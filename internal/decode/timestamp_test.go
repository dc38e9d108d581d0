package decode

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseTimestamp(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"2025-11-20 12:25:01+00", "2025-11-20T12:25:01Z"},
		{"2025-11-20 12:25:01", "2025-11-20T12:25:01Z"},
		{"2025-11-20 12:25:01.5+00", "2025-11-20T12:25:01.5Z"},
		{"2025-11-20 12:25:01.000001+00", "2025-11-20T12:25:01.000001Z"},
		{"2025-11-20 12:25:01.123456", "2025-11-20T12:25:01.123456Z"},
		{"2025-11-20 12:25:01+02", "2025-11-20T10:25:01Z"},
		{"2025-11-20 12:25:01-03:30", "2025-11-20T15:55:01Z"},
		{"1800-01-01 00:00:00+00:19:32", "1799-12-31T23:40:28Z"},
		{"2024-02-29 00:00:00+00", "2024-02-29T00:00:00Z"},
		{"0001-01-01 00:00:00+00", "0001-01-01T00:00:00Z"},
		{"9999-12-31 23:59:59.999999+00", "9999-12-31T23:59:59.999999Z"},
	} {
		got, ok := parseTimestamp([]byte(c.text))
		if !ok || got.Format(time.RFC3339Nano) != c.want {
			t.Errorf("%q: got %v, %v; want %s", c.text, got, ok, c.want)
		}
	}
	for _, text := range []string{
		"", "infinity", "-infinity", "epoch", "2025-11-20", "0044-03-15 12:00:00+00 BC", "0044-03-15 12:00:00 BC",
		"10000-01-01 00:00:00+00", "294276-12-31 23:59:59.999999+00", "0000-01-01 00:00:00+00", "0001-01-01 00:00:00+01",
		"9999-12-31 23:59:59-01", "2025-02-29 00:00:00+00", "1900-02-29 00:00:00+00", "2025-04-31 00:00:00+00",
		"2025-13-01 00:00:00+00", "2025-00-01 00:00:00+00", "2025-01-00 00:00:00+00", "2025-01-01 24:00:00+00",
		"2025-01-01 00:60:00+00", "2025-01-01 00:00:60+00", "2025-01-01 00:00:00.+00", "2025-01-01 00:00:00.1234567+00",
		"2025-01-01T00:00:00Z", "2025-01-01 00:00:00Z", "2025-01-01 00:00:00 UTC", "2025-01-01 00:00:00+0", "2025-01-01 00:00:00+00:",
		"2025-01-01 00:00:00+00:00:00:00", "2025-01-01 00:00:00+00-30", "20x5-01-01 00:00:00+00", "2025-01-01 00:00:0:+00",
	} {
		if got, ok := parseTimestamp([]byte(text)); ok {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

// TestParseTimestampAgainstTime: it reads what time.Format writes, for every microsecond of the
// years 1 to 9999.
func TestParseTimestampAgainstTime(t *testing.T) {
	first, last := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		want := time.UnixMicro(rapid.Int64Range(first.UnixMicro(), last.UnixMicro()).Draw(t, "micros")).UTC()
		got, ok := parseTimestamp([]byte(want.Format("2006-01-02 15:04:05.999999") + "+00"))
		if !ok || got != want {
			t.Fatalf("got %v, %v; want %v", got, ok, want)
		}
	})
}

// TestParseTimestampAgreesWithTime: what it accepts, time.Parse reads the same way.
func TestParseTimestampAgreesWithTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[0-2]\d\d\d-[01]\d-[0-3]\d [0-2]\d:[0-6]\d:[0-6]\d(\.\d{1,6})?`).Draw(t, "text")
		got, ok := parseTimestamp([]byte(text))
		want, err := time.Parse("2006-01-02 15:04:05.999999", text)
		if ok != (err == nil && want.Year() > 0) || ok && got != want {
			t.Fatalf("%q: got %v, %v; time.Parse: %v, %v", text, got, ok, want, err)
		}
	})
}
