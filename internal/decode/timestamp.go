// Timestamps as a session with DateStyle ISO and TimeZone UTC prints them.

package decode

import "time"

// parseTimestamp reads "2025-11-20 12:25:01.123456" with an optional offset "+00", "-03:30" or "+01:02:03"; without one
// it is UTC. It refuses what has no place in a time of the years 1 to 9999: infinity, BC, years of five digits.
func parseTimestamp(b []byte) (time.Time, bool) {
	const layout = "dddd-dd-dd dd:dd:dd"
	if len(b) < len(layout) || !hasShape(b[:len(layout)], layout) {
		return time.Time{}, false
	}
	year, month, day := digits(b[0:4]), digits(b[5:7]), digits(b[8:10])
	hour, minute, second := digits(b[11:13]), digits(b[14:16]), digits(b[17:19])
	if year < 1 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	micros, rest, ok := parseFraction(b[len(layout):])
	if !ok {
		return time.Time{}, false
	}
	offset, ok := parseOffset(rest)
	if !ok {
		return time.Time{}, false
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second, micros*1000, time.UTC)
	if offset == 0 {
		return t, true
	}
	t = t.Add(-offset)
	return t, t.Year() >= 1 && t.Year() <= 9999
}

func daysIn(year, month int) int {
	switch {
	case month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0):
		return 29
	case month == 2:
		return 28
	case month == 4 || month == 6 || month == 9 || month == 11:
		return 30
	default:
		return 31
	}
}

// parseFraction reads "" or ".1" to ".123456".
func parseFraction(b []byte) (micros int, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '.' {
		return 0, b, true
	}
	n := 1
	for ; n < len(b) && n <= 6 && isDigit(b[n]); n++ {
		micros = micros*10 + int(b[n]-'0')
	}
	if n == 1 {
		return 0, nil, false
	}
	for i := n; i <= 6; i++ {
		micros *= 10
	}
	return micros, b[n:], true
}

// parseOffset reads "", "+hh", "+hh:mm" or "+hh:mm:ss".
func parseOffset(b []byte) (time.Duration, bool) {
	if len(b) == 0 {
		return 0, true
	}
	const layout = "+dd:dd:dd"
	if len(b) != 3 && len(b) != 6 && len(b) != 9 || b[0] != '+' && b[0] != '-' || !hasShape(b[1:], layout[1:len(b)]) {
		return 0, false
	}
	var offset time.Duration
	unit := time.Hour
	for i := 1; i < len(b); i += 3 {
		offset += time.Duration(digits(b[i:i+2])) * unit
		unit /= 60
	}
	if b[0] == '-' {
		offset = -offset
	}
	return offset, true
}

// hasShape reports whether b is like layout, in which d stands for a digit and anything else for itself.
func hasShape(b []byte, layout string) bool {
	for i, c := range b {
		if layout[i] == 'd' && !isDigit(c) || layout[i] != 'd' && layout[i] != c {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func digits(b []byte) int {
	n := 0
	for _, c := range b {
		n = n*10 + int(c-'0')
	}
	return n
}
