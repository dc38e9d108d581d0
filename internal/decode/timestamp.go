// Timestamps as a session with DateStyle ISO and TimeZone UTC prints them.

package decode

import (
	"bytes"
	"time"
)

// parseTimestamp reads "2025-11-20 12:25:01.123456" with an optional offset "+00", "-03:30" or
// "+01:02:03"; without one it is UTC.
func parseTimestamp(text []byte) (time.Time, bool) {
	const layout, local = "2006-01-02 15:04:05-07:00:00", len("2006-01-02 15:04:05")
	offset := 0
	if i := bytes.LastIndexAny(text, "+-"); i >= local {
		offset = len(text) - i
	}
	if offset%3 != 0 || local+offset > len(layout) {
		return time.Time{}, false
	}
	return parseTime(layout[:local+offset], text)
}

// parseTime refuses what is not of the years 1 to 9999.
func parseTime(layout string, text []byte) (time.Time, bool) {
	at, err := time.ParseInLocation(layout, string(text), time.UTC)
	at = at.UTC().Truncate(time.Microsecond)
	return at, err == nil && at.Year() >= 1 && at.Year() <= 9999
}
