// Dates and times under time.precision.mode.

package columns

import (
	"math"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

func dateKind(mode TimeMode) columnKind {
	switch mode {
	case TimeISOString:
		return columnKind{schema: logical(connect.String, "io.debezium.time.IsoDate"), read: readISODate, parse: readISODate, filler: epoch}
	case TimeConnect:
		return columnKind{schema: logical(connect.Int32, connect.DateName), read: readConnectDate, parse: readConnectDate, filler: epoch}
	default:
		return columnKind{schema: logical(connect.Int32, "io.debezium.time.Date"), read: readDate, parse: readDate, filler: epoch}
	}
}

func timeKind(digits int, mode TimeMode) columnKind {
	const midnight = "00:00"
	switch mode {
	case TimeISOString:
		return columnKind{schema: logical(connect.String, "io.debezium.time.IsoTime"), read: readISOTime, parse: readISOTime, filler: midnight}
	case TimeConnect:
		read := scaledTime(connect.Moment, 1000)
		return columnKind{schema: logical(connect.Int32, connect.TimeName), read: read, parse: read, filler: midnight}
	case TimeNanoseconds:
		read := nanoTime
		return columnKind{schema: logical(connect.Int64, "io.debezium.time.NanoTime"), read: read, parse: read, filler: midnight}
	case TimeAdaptive:
		if digits <= 3 {
			read := scaledTime(connect.Integer, 1000)
			return columnKind{schema: logical(connect.Int32, "io.debezium.time.Time"), read: read, parse: read, filler: midnight}
		}
	default:
	}
	read := scaledTime(connect.Integer, 1)
	return columnKind{schema: logical(connect.Int64, "io.debezium.time.MicroTime"), read: read, parse: read, filler: midnight}
}

func timestampKind(digits int, mode TimeMode) columnKind {
	switch mode {
	case TimeISOString:
		return columnKind{schema: logical(connect.String, "io.debezium.time.IsoTimestamp"), read: readISOTimestamp, parse: readISOTimestamp, filler: epoch}
	case TimeConnect:
		read := countedTimestamp(connect.Moment, instant.millis)
		return columnKind{schema: logical(connect.Int64, connect.TimestampName), read: read, parse: read, filler: epoch}
	case TimeNanoseconds:
		return columnKind{schema: logical(connect.Int64, "io.debezium.time.NanoTimestamp"), read: readNanoTimestamp, parse: readNanoTimestamp, filler: epoch}
	case TimeAdaptive, TimeAdaptiveMicroseconds:
		if digits <= 3 {
			read := countedTimestamp(connect.Integer, instant.millis)
			return columnKind{schema: logical(connect.Int64, "io.debezium.time.Timestamp"), read: read, parse: read, filler: epoch}
		}
	default:
	}
	read := countedTimestamp(connect.Integer, instant.toMicros)
	return columnKind{schema: logical(connect.Int64, "io.debezium.time.MicroTimestamp"), read: read, parse: read, filler: epoch}
}

// timestamptzKind is the same in every mode: text in UTC, its fraction as long as the column's (all
// of it when that is 0).
func timestamptzKind(digits int) columnKind {
	read := func(scratch, text []byte) (connect.Value, []byte, error) {
		if string(text) == "infinity" || string(text) == "-infinity" {
			return connect.TextValue(text), scratch, nil
		}
		at, ok := parseTimestamp(text)
		if !ok {
			return connect.Value{}, scratch, errNotIts
		}
		start := len(scratch)
		scratch = appendTimestamp(scratch, at, digits)
		return connect.TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
	}
	return columnKind{schema: logical(connect.String, "io.debezium.time.ZonedTimestamp"), read: read, parse: read, filler: epoch}
}

func readDate(scratch, text []byte) (connect.Value, []byte, error) {
	days, ok := parseDate(text)
	if !ok {
		return connect.Value{}, scratch, errNotIts
	}
	return connect.Value{Kind: connect.Integer, Int: int64(int32(days))}, scratch, nil
}

func readConnectDate(scratch, text []byte) (connect.Value, []byte, error) {
	v, scratch, err := readDate(scratch, text)
	v.Kind, v.Int = connect.Moment, v.Int*connect.MillisPerDay
	return v, scratch, err
}

func readISODate(scratch, text []byte) (connect.Value, []byte, error) {
	days, ok := parseDate(text)
	if !ok {
		return connect.Value{}, scratch, errNotIts
	}
	start := len(scratch)
	scratch = append(appendDate(scratch, days), 'Z')
	return connect.TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
}

// scaledTime reads a time in units of so many microseconds. 24:00:00 is a whole day.
func scaledTime(kind connect.Kind, unit int64) reader {
	return func(scratch, text []byte) (connect.Value, []byte, error) {
		micros, rest, ok := parseClock(text)
		if !ok || len(rest) > 0 {
			return connect.Value{}, scratch, errNotIts
		}
		return connect.Value{Kind: kind, Int: micros / unit}, scratch, nil
	}
}

func nanoTime(scratch, text []byte) (connect.Value, []byte, error) {
	v, scratch, err := scaledTime(connect.Integer, 1)(scratch, text)
	v.Int *= 1000
	return v, scratch, err
}

// readISOTime wraps 24:00:00 to 00:00:00, as LocalTime.plus does.
func readISOTime(scratch, text []byte) (connect.Value, []byte, error) {
	micros, rest, ok := parseClock(text)
	if !ok || len(rest) > 0 {
		return connect.Value{}, scratch, errNotIts
	}
	start := len(scratch)
	scratch = append(appendClock(scratch, micros%microsPerDay, 0), 'Z')
	return connect.TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
}

// readTimetz gives the time in UTC, 24:00:00 as 00:00:00. Debezium reads no offset with seconds.
func readTimetz(scratch, text []byte) (connect.Value, []byte, error) {
	micros, rest, ok := parseClock(text)
	offset, known := parseOffset(rest)
	if !ok || !known || len(rest) > len("+00:00") || len(rest) == 0 {
		return connect.Value{}, scratch, errNotIts
	}
	micros = ((micros-offset)%microsPerDay + microsPerDay) % microsPerDay
	start := len(scratch)
	scratch = append(appendClock(scratch, micros, 0), 'Z')
	return connect.TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
}

// countedTimestamp reads a timestamp in milliseconds, rounded down, or in microseconds.
func countedTimestamp(kind connect.Kind, count func(instant) int64) reader {
	return func(scratch, text []byte) (connect.Value, []byte, error) {
		at, ok := parseInstant(text)
		if !ok {
			return connect.Value{}, scratch, errNotIts
		}
		return connect.Value{Kind: kind, Int: count(at)}, scratch, nil
	}
}

// readNanoTimestamp: what lies outside of 1677 to 2262 has no place in 64 bits of nanoseconds.
func readNanoTimestamp(scratch, text []byte) (connect.Value, []byte, error) {
	switch string(text) {
	case "infinity":
		return connect.Value{Kind: connect.Integer, Int: math.MaxInt64}, scratch, nil
	case "-infinity":
		return connect.Value{Kind: connect.Integer, Int: math.MinInt64}, scratch, nil
	}
	at, ok := parseTimestamp(text)
	if !ok {
		return connect.Value{}, scratch, errNotIts
	}
	// Debezium multiplies the days first: that is what must not overflow.
	if at.days > math.MaxInt64/1000/microsPerDay || at.days < math.MinInt64/1000/microsPerDay || at.toMicros() > math.MaxInt64/1000 {
		return connect.Value{}, scratch, errOutOfRange
	}
	return connect.Value{Kind: connect.Integer, Int: at.toMicros() * 1000}, scratch, nil
}

func readISOTimestamp(scratch, text []byte) (connect.Value, []byte, error) {
	at, ok := parseInstant(text)
	if !ok {
		return connect.Value{}, scratch, errNotIts
	}
	start := len(scratch)
	scratch = appendTimestamp(scratch, at, 0)
	return connect.TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
}

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
