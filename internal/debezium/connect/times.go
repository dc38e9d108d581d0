// Dates and times under time.precision.mode: PostgreSQL's text (DateStyle ISO) read, ISO 8601 as
// Java formats it written.

package connect

import (
	"math"
	"strconv"
	"time"
)

func dateKind(mode string) columnKind {
	switch mode {
	case "isostring":
		return likeRows(logical(String, "io.debezium.time.IsoDate"), readISODate, epoch)
	case "connect":
		return likeRows(logical(Int32, DateName), dayReader(Moment, MillisPerDay), epoch)
	default:
		return likeRows(logical(Int32, "io.debezium.time.Date"), dayReader(Integer, 1), epoch)
	}
}

func timeKind(digits int, mode string) columnKind {
	const midnight = "00:00"
	switch {
	case mode == "isostring":
		return likeRows(logical(String, "io.debezium.time.IsoTime"), readISOTime, midnight)
	case mode == "connect":
		return likeRows(logical(Int32, TimeName), clockReader(Moment, func(micros int64) int64 { return micros / 1000 }), midnight)
	case mode == "nanoseconds":
		return likeRows(logical(Int64, "io.debezium.time.NanoTime"), clockReader(Integer, func(micros int64) int64 { return micros * 1000 }), midnight)
	case (mode == "adaptive" || mode == "") && digits <= 3:
		return likeRows(logical(Int32, "io.debezium.time.Time"), clockReader(Integer, func(micros int64) int64 { return micros / 1000 }), midnight)
	default:
		return likeRows(logical(Int64, "io.debezium.time.MicroTime"), clockReader(Integer, func(micros int64) int64 { return micros }), midnight)
	}
}

func timestampKind(digits int, mode string) columnKind {
	switch {
	case mode == "isostring":
		return likeRows(logical(String, "io.debezium.time.IsoTimestamp"), readISOTimestamp, epoch)
	case mode == "connect":
		return likeRows(logical(Int64, TimestampName), countedTimestamp(Moment, instant.millis), epoch)
	case mode == "nanoseconds":
		return likeRows(logical(Int64, "io.debezium.time.NanoTimestamp"), readNanoTimestamp, epoch)
	case mode != "microseconds" && digits <= 3:
		return likeRows(logical(Int64, "io.debezium.time.Timestamp"), countedTimestamp(Integer, instant.millis), epoch)
	default:
		return likeRows(logical(Int64, "io.debezium.time.MicroTimestamp"), countedTimestamp(Integer, instant.toMicros), epoch)
	}
}

// timestamptzKind is the same in every mode: text in UTC, its fraction as long as the column's (all
// of it when that is 0).
func timestamptzKind(digits int) columnKind {
	return likeRows(logical(String, "io.debezium.time.ZonedTimestamp"), textReader(func(dst, text []byte) ([]byte, bool) {
		if string(text) == "infinity" || string(text) == "-infinity" {
			return append(dst, text...), true
		}
		at, ok := parseTimestamp(text)
		if !ok {
			return dst, false
		}
		return appendTimestamp(dst, at, digits), true
	}), epoch)
}

// dayReader makes the reader of a date in units, of which a day has perDay.
func dayReader(kind Kind, perDay int64) reader {
	return countReader(kind, func(text []byte) (int64, error) {
		n, ok := parseDate(text)
		if !ok {
			return 0, errNotIts
		}
		return int64(int32(n)) * perDay, nil
	})
}

var readISODate = textReader(func(dst, text []byte) ([]byte, bool) {
	n, ok := parseDate(text)
	if !ok {
		return dst, false
	}
	return append(appendDate(dst, n), 'Z'), true
})

// clockReader reads a time, counted in another unit. 24:00:00 is a whole day.
func clockReader(kind Kind, count func(micros int64) int64) reader {
	return countReader(kind, func(text []byte) (int64, error) {
		micros, rest, ok := parseClock(text)
		if !ok || len(rest) > 0 {
			return 0, errNotIts
		}
		return count(micros), nil
	})
}

// readISOTime wraps 24:00:00 to 00:00:00, as LocalTime.plus does.
var readISOTime = textReader(func(dst, text []byte) ([]byte, bool) {
	micros, rest, ok := parseClock(text)
	return append(appendClock(dst, micros%microsPerDay, 0), 'Z'), ok && len(rest) == 0
})

// readTimetz gives the time in UTC, 24:00:00 as 00:00:00. Debezium reads no offset with seconds.
var readTimetz = textReader(func(dst, text []byte) ([]byte, bool) {
	micros, rest, ok := parseClock(text)
	offset, known := parseOffset(rest)
	micros = ((micros-offset)%microsPerDay + microsPerDay) % microsPerDay
	return append(appendClock(dst, micros, 0), 'Z'), ok && known && len(rest) <= len("+00:00") && len(rest) > 0
})

// countedTimestamp reads a timestamp in milliseconds, rounded down, or in microseconds.
func countedTimestamp(kind Kind, count func(instant) int64) reader {
	return countReader(kind, func(text []byte) (int64, error) {
		at, ok := parseInstant(text)
		if !ok {
			return 0, errNotIts
		}
		return count(at), nil
	})
}

// readNanoTimestamp: what lies outside of 1677 to 2262 has no place in 64 bits of nanoseconds.
var readNanoTimestamp = countReader(Integer, func(text []byte) (int64, error) {
	switch string(text) {
	case "infinity":
		return math.MaxInt64, nil
	case "-infinity":
		return math.MinInt64, nil
	}
	at, ok := parseTimestamp(text)
	if !ok {
		return 0, errNotIts
	}
	// Debezium multiplies the days first: that is what must not overflow.
	if at.days > math.MaxInt64/1000/microsPerDay || at.days < math.MinInt64/1000/microsPerDay || at.toMicros() > math.MaxInt64/1000 {
		return 0, errOutOfRange
	}
	return at.toMicros() * 1000, nil
})

var readISOTimestamp = textReader(func(dst, text []byte) ([]byte, bool) {
	at, ok := parseInstant(text)
	if !ok {
		return dst, false
	}
	return appendTimestamp(dst, at, 0), true
})

// parseInstant is parseTimestamp with the infinities as Debezium has them.
func parseInstant(text []byte) (at instant, ok bool) {
	switch string(text) {
	case "infinity":
		return instantOf(infinityMicros), true
	case "-infinity":
		return instantOf(minusInfinityMicros), true
	}
	return parseTimestamp(text)
}

const (
	microsPerDay = 24 * 60 * 60 * 1_000_000
	epoch        = "1970-01-01"
)

// The values that Debezium has for the infinities (PostgresValueConverter).
const (
	infinityDays  = -2147472692 // LocalDate -5877611-06-21, of a wrong sign there
	minusInfinity = -2147472691
	// PGStatement.DATE_POSITIVE_INFINITY, taken for microseconds
	infinityMicros      = 9223372036825200000
	minusInfinityMicros = -9223372036832400000
)

// instant is a point in time, its days since 1970 and the microseconds of its day kept apart:
// PostgreSQL's last timestamps, from the year 294247 on, are more microseconds than 64 bits hold.
type instant struct{ days, micros int64 }

// parseTimestamp reads "2025-11-20 12:25:01.5", with an offset from UTC or without, and with " BC"
// or without.
func parseTimestamp(text []byte) (at instant, ok bool) {
	text, bc := cutBC(text)
	days, rest, ok := parseDays(text, bc)
	if !ok {
		return instant{}, false
	}
	if len(rest) == 0 { // a default's date
		return instant{days: days}, true
	}
	if rest[0] != ' ' && rest[0] != 'T' {
		return instant{}, false
	}
	clock, rest, ok := parseClock(rest[1:])
	if !ok {
		return instant{}, false
	}
	offset, ok := parseOffset(rest)
	at = instantOf(clock - offset)
	at.days += days
	return at, ok
}

func instantOf(micros int64) instant {
	days, rest := micros/microsPerDay, micros%microsPerDay
	if rest < 0 {
		days, rest = days-1, rest+microsPerDay
	}
	return instant{days: days, micros: rest}
}

func (at instant) millis() int64 { return at.days*MillisPerDay + at.micros/1000 }

// toMicros is what Debezium counts: its seconds stop at what 64 bits of microseconds hold, and the
// fraction is added all the same.
func (at instant) toMicros() int64 {
	const perSecond = 1_000_000
	seconds := at.days*(microsPerDay/perSecond) + at.micros/perSecond
	whole := int64(math.MaxInt64)
	if seconds <= math.MaxInt64/perSecond {
		whole = seconds * perSecond
	}
	return whole + at.micros%perSecond
}

// parseDate reads a date, or one of the infinities.
func parseDate(text []byte) (days int64, ok bool) {
	switch string(text) {
	case "infinity":
		return infinityDays, true
	case "-infinity":
		return minusInfinity, true
	}
	text, bc := cutBC(text)
	days, rest, ok := parseDays(text, bc)
	return days, ok && len(rest) == 0
}

func cutBC(text []byte) (rest []byte, bc bool) {
	if n := len(text) - len(" BC"); n > 0 && string(text[n:]) == " BC" {
		return text[:n], true
	}
	return text, false
}

// parseDays reads "2025-11-20" at the beginning of text, and counts the days from 1970.
func parseDays(text []byte, bc bool) (days int64, rest []byte, ok bool) {
	year, n := 0, 0
	for ; n < len(text) && n < 7 && text[n]-'0' <= 9; n++ {
		year = 10*year + int(text[n]-'0')
	}
	if n < 4 || len(text) < n+6 || text[n] != '-' || text[n+3] != '-' {
		return 0, nil, false
	}
	month, day := twoDigits(text[n+1:]), twoDigits(text[n+4:])
	if month < 1 || month > 12 || day < 1 || day > 31 {
		return 0, nil, false
	}
	if bc {
		year = 1 - year
	}
	return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60), text[n+6:], true
}

// parseClock reads "12:25", "12:25:01" or "12:25:01.5" at the beginning of text.
func parseClock(text []byte) (micros int64, rest []byte, ok bool) {
	if len(text) < 5 || text[2] != ':' {
		return 0, nil, false
	}
	hour, minute, second := twoDigits(text), twoDigits(text[3:]), 0
	rest = text[5:]
	if len(rest) >= 3 && rest[0] == ':' {
		second, rest = twoDigits(rest[1:]), rest[3:]
	}
	if hour < 0 || hour > 24 || minute < 0 || minute > 59 || second < 0 || second > 59 {
		return 0, nil, false
	}
	micros = int64((hour*60+minute)*60+second) * 1_000_000
	if len(rest) > 1 && rest[0] == '.' {
		unit := int64(100_000)
		rest = rest[1:]
		for len(rest) > 0 && rest[0]-'0' <= 9 {
			micros += int64(rest[0]-'0') * unit
			unit /= 10
			rest = rest[1:]
		}
	}
	return micros, rest, micros <= microsPerDay
}

// parseOffset reads "", "+02", "-03:30" or "+01:02:03".
func parseOffset(text []byte) (micros int64, ok bool) {
	if len(text) == 0 {
		return 0, true
	}
	if len(text)%3 != 0 || text[0] != '+' && text[0] != '-' {
		return 0, false
	}
	unit := int64(3600)
	for i := 0; i < len(text); i += 3 {
		n := twoDigits(text[i+1:])
		if n < 0 || n > 59 || i > 0 && text[i] != ':' || unit == 0 {
			return 0, false
		}
		micros += int64(n) * unit * 1_000_000
		unit /= 60
	}
	if text[0] == '-' {
		micros = -micros
	}
	return micros, true
}

// twoDigits is the number that two digits write, or -1.
func twoDigits(text []byte) int {
	tens, ones := text[0]-'0', text[1]-'0'
	if tens > 9 || ones > 9 {
		return -1
	}
	return 10*int(tens) + int(ones)
}

// dateOf turns days since 1970-01-01 into a time in UTC.
func dateOf(days int64) time.Time { return time.Unix(days*24*60*60, 0).UTC() }

// appendDate is ISO_LOCAL_DATE: a year of four digits, with a sign when it has more or lies before
// the year 0.
func appendDate(dst []byte, days int64) []byte {
	at := dateOf(days)
	year := at.Year()
	if year < 0 {
		dst = append(dst, '-')
		year = -year
	} else if year > 9999 {
		dst = append(dst, '+')
	}
	for unit := 1000; year < unit && unit > 1; unit /= 10 {
		dst = append(dst, '0')
	}
	return at.AppendFormat(strconv.AppendInt(dst, int64(year), 10), "-01-02")
}

// appendClock is ISO_LOCAL_TIME: hours, minutes and seconds, and a fraction of that many digits; of
// as many as it has for 0.
func appendClock(dst []byte, micros int64, digits int) []byte {
	layout := "15:04:05.999999"
	if digits > 0 {
		layout = "15:04:05.000000"[:len("15:04:05.")+digits]
	}
	return time.UnixMicro(micros).UTC().AppendFormat(dst, layout)
}

// appendTimestamp is ISO_OFFSET_DATE_TIME in UTC.
func appendTimestamp(dst []byte, at instant, digits int) []byte {
	dst = append(appendDate(dst, at.days), 'T')
	return append(appendClock(dst, at.micros, digits), 'Z')
}
