// Times on the command line.

package command

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// ParseTime reads a time: RFC 3339, a date, a date and a time, or how long ago, also in days.
func ParseTime(s string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02 15:04", time.DateTime} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("want a time in UTC such as 2026-11-20, 2026-11-20T15:04:05Z or \"2026-11-20 15:04\", or how long ago, such as 90m or 7d")
}
