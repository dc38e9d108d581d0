// Dates and times under time.precision.mode.

package connect

import (
	"math"
)

// The names of Kafka Connect's own logical types, which time.precision.mode connect uses.
const (
	connectDate      = "org.apache.kafka.connect.data.Date"
	connectTime      = "org.apache.kafka.connect.data.Time"
	connectTimestamp = "org.apache.kafka.connect.data.Timestamp"
)

const (
	microsPerDay = 24 * 60 * 60 * 1_000_000
	millisPerDay = 24 * 60 * 60 * 1000
	epoch        = "1970-01-01"
)

// The values that Debezium has for the infinities (PostgresValueConverter).
const (
	infinityDays   = -2145042539 // LocalDate -5877611-06-21, of a wrong sign there
	minusInfinity  = -2145042538
	infinityMicros = math.MaxInt64 - 29575807 // PGStatement.DATE_POSITIVE_INFINITY, taken for microseconds
)

func dateKind(mode TimeMode) columnKind {
	switch mode {
	case TimeISOString:
		return columnKind{logical(String, "io.debezium.time.IsoDate"), readISODate, readISODate, epoch}
	case TimeConnect:
		return columnKind{logical(Int32, connectDate), readConnectDate, readConnectDate, epoch}
	default:
		return columnKind{logical(Int32, "io.debezium.time.Date"), readDate, readDate, epoch}
	}
}

func timeKind(digits int, mode TimeMode) columnKind {
	const midnight = "00:00"
	switch mode {
	case TimeISOString:
		return columnKind{logical(String, "io.debezium.time.IsoTime"), readISOTime, readISOTime, midnight}
	case TimeConnect:
		read := scaledTime(Moment, 1000)
		return columnKind{logical(Int32, connectTime), read, read, midnight}
	case TimeNanoseconds:
		read := nanoTime
		return columnKind{logical(Int64, "io.debezium.time.NanoTime"), read, read, midnight}
	case TimeAdaptive:
		if digits <= 3 {
			read := scaledTime(Integer, 1000)
			return columnKind{logical(Int32, "io.debezium.time.Time"), read, read, midnight}
		}
	}
	read := scaledTime(Integer, 1)
	return columnKind{logical(Int64, "io.debezium.time.MicroTime"), read, read, midnight}
}

func timestampKind(digits int, mode TimeMode) columnKind {
	switch mode {
	case TimeISOString:
		return columnKind{logical(String, "io.debezium.time.IsoTimestamp"), readISOTimestamp, readISOTimestamp, epoch}
	case TimeConnect:
		read := scaledTimestamp(Moment, 1000)
		return columnKind{logical(Int64, connectTimestamp), read, read, epoch}
	case TimeNanoseconds:
		return columnKind{logical(Int64, "io.debezium.time.NanoTimestamp"), readNanoTimestamp, readNanoTimestamp, epoch}
	case TimeAdaptive, TimeAdaptiveMicroseconds:
		if digits <= 3 {
			read := scaledTimestamp(Integer, 1000)
			return columnKind{logical(Int64, "io.debezium.time.Timestamp"), read, read, epoch}
		}
	}
	read := scaledTimestamp(Integer, 1)
	return columnKind{logical(Int64, "io.debezium.time.MicroTimestamp"), read, read, epoch}
}

// timestamptzKind is the same in every mode: text in UTC, its fraction as long as the column's (all of it when that is 0).
func timestamptzKind(digits int) columnKind {
	read := func(scratch, text []byte) (Value, []byte, error) {
		if string(text) == "infinity" || string(text) == "-infinity" {
			return TextValue(text), scratch, nil
		}
		micros, ok := parseTimestamp(text)
		if !ok {
			return Value{}, scratch, errNotIts
		}
		start := len(scratch)
		scratch = appendTimestamp(scratch, micros, digits)
		return TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
	}
	return columnKind{logical(String, "io.debezium.time.ZonedTimestamp"), read, read, epoch}
}

func readDate(scratch, text []byte) (Value, []byte, error) {
	days, ok := parseDate(text)
	if !ok {
		return Value{}, scratch, errNotIts
	}
	return Value{Kind: Integer, Int: int64(int32(days))}, scratch, nil
}

func readConnectDate(scratch, text []byte) (Value, []byte, error) {
	v, scratch, err := readDate(scratch, text)
	v.Kind, v.Int = Moment, v.Int*millisPerDay
	return v, scratch, err
}

func readISODate(scratch, text []byte) (Value, []byte, error) {
	days, ok := parseDate(text)
	if !ok {
		return Value{}, scratch, errNotIts
	}
	start := len(scratch)
	scratch = append(appendDate(scratch, days), 'Z')
	return TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
}

// scaledTime reads a time in units of so many microseconds. 24:00:00 is a whole day.
func scaledTime(kind Kind, unit int64) reader {
	return func(scratch, text []byte) (Value, []byte, error) {
		micros, rest, ok := parseClock(text)
		if !ok || len(rest) > 0 {
			return Value{}, scratch, errNotIts
		}
		return Value{Kind: kind, Int: micros / unit}, scratch, nil
	}
}

func nanoTime(scratch, text []byte) (Value, []byte, error) {
	v, scratch, err := scaledTime(Integer, 1)(scratch, text)
	v.Int *= 1000
	return v, scratch, err
}

// readISOTime wraps 24:00:00 to 00:00:00, as LocalTime.plus does.
func readISOTime(scratch, text []byte) (Value, []byte, error) {
	micros, rest, ok := parseClock(text)
	if !ok || len(rest) > 0 {
		return Value{}, scratch, errNotIts
	}
	start := len(scratch)
	scratch = append(appendClock(scratch, micros%microsPerDay, 0), 'Z')
	return TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
}

// readTimetz gives the time in UTC. Java knows no 24:00:00, and Debezium no offset with seconds.
func readTimetz(scratch, text []byte) (Value, []byte, error) {
	micros, rest, ok := parseClock(text)
	offset, known := parseOffset(rest)
	if !ok || !known || len(rest) > len("+00:00") || len(rest) == 0 || micros >= microsPerDay {
		return Value{}, scratch, errNotIts
	}
	micros = ((micros-offset)%microsPerDay + microsPerDay) % microsPerDay
	start := len(scratch)
	scratch = append(appendClock(scratch, micros, 0), 'Z')
	return TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
}

// scaledTimestamp reads a timestamp in units of so many microseconds, rounded down.
func scaledTimestamp(kind Kind, unit int64) reader {
	return func(scratch, text []byte) (Value, []byte, error) {
		micros, ok := parseInstant(text)
		if !ok {
			return Value{}, scratch, errNotIts
		}
		return Value{Kind: kind, Int: floorDiv(micros, unit)}, scratch, nil
	}
}

// readNanoTimestamp: a year that has no place in 64 bits of nanoseconds overflows as it does in Java, where the seconds stop at
// the largest number and the fraction is added to that.
func readNanoTimestamp(scratch, text []byte) (Value, []byte, error) {
	micros, ok := parseInstant(text)
	if !ok {
		return Value{}, scratch, errNotIts
	}
	seconds := floorDiv(micros, 1_000_000)
	nanos := (micros - seconds*1_000_000) * 1000
	switch {
	case string(text) == "infinity":
		return Value{Kind: Integer, Int: math.MaxInt64}, scratch, nil
	case string(text) == "-infinity":
		return Value{Kind: Integer, Int: math.MinInt64}, scratch, nil
	case seconds > math.MaxInt64/1_000_000_000:
		nanos += math.MaxInt64
	case seconds < math.MinInt64/1_000_000_000:
		nanos += math.MinInt64
	default:
		nanos += seconds * 1_000_000_000
	}
	return Value{Kind: Integer, Int: nanos}, scratch, nil
}

func readISOTimestamp(scratch, text []byte) (Value, []byte, error) {
	micros, ok := parseInstant(text)
	if !ok {
		return Value{}, scratch, errNotIts
	}
	start := len(scratch)
	scratch = appendTimestamp(scratch, micros, 0)
	return TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
}

// parseInstant is parseTimestamp with the infinities as Debezium has them.
func parseInstant(text []byte) (micros int64, ok bool) {
	switch string(text) {
	case "infinity":
		return infinityMicros, true
	case "-infinity":
		return -infinityMicros, true
	}
	return parseTimestamp(text)
}
