// Headers as AMQP has them: each name once, the last one of a record, and with a type.

package message

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// header writes one header, with what its encoded value takes added to the size of the table.
func (m *Message) header(h *sink.Header) *sink.Fault {
	if len(h.Name) > MaxShortString {
		return sink.PermanentFault(sink.Invalid, fmt.Sprintf("a header's name has %d bytes, the protocol carries %d", len(h.Name), MaxShortString))
	}
	if h.Name == headerCC || h.Name == headerBCC {
		keys, size, fault := m.copies(h)
		if fault == nil && keys != nil {
			m.set(h.Name, keys, size)
		}
		return fault
	}
	var value any
	size := 4 + len(h.Value)
	switch h.Kind {
	case sink.Bytes:
		value = h.Value
	case sink.Text:
		value = text(h.Value)
	case sink.JSON:
		value, size = jsonValue(h.Value)
	}
	m.set(h.Name, value, size)
	return nil
}

// set puts a value of an encoded size into the table. What is over the limit of a frame is only
// counted, for the fault that says how much it is.
func (m *Message) set(name string, value any, size int) {
	m.TableSize += 1 + len(name) + 1 + size // the name with its length, the type, the value
	if m.TableSize <= int(m.Limits.Header.Load()) {
		m.Pub.Headers[name] = value
	}
}

// jsonValue is a JSON value as amqp091 encodes it, and its encoded size without the type octet:
// true, false and null are what they are in AMQP; a number that fits is a 64-bit integer, a decimal
// a double, and one that a double would round (or an integer beyond 64 bits) is its text, as is an
// array or object. nil is null.
func jsonValue(raw []byte) (value any, size int) {
	if raw == nil {
		return nil, 0
	}
	switch raw[0] {
	case 't', 'f':
		return raw[0] == 't', 1
	case '{', '[':
		return text(raw), 4 + len(raw)
	}
	if len(raw) <= len("-9223372036854775808") {
		if n, err := strconv.ParseInt(text(raw), 10, 64); err == nil {
			return n, 8
		}
	}
	if bytes.ContainsAny(raw, ".eE") {
		if f, err := strconv.ParseFloat(text(raw), 64); err == nil && isWritten(f, raw) {
			return f, 8
		}
	}
	return text(raw), 4 + len(raw)
}

// isWritten is whether the shortest decimal that reads as f is the number in raw: whoever prints f
// prints that number.
func isWritten(f float64, raw []byte) bool {
	var buf [32]byte
	of, ok := decimalOf(raw)
	shortest, _ := decimalOf(strconv.AppendFloat(buf[:0], f, 'e', -1, 64))
	return ok && of == shortest
}

// decimal is 0.DIGITS times 10 to the power of exponent. No double has more digits.
type decimal struct {
	digits   [17]byte // the first is not 0, and behind the last are zero bytes
	exponent int
}

// decimalOf reads a number of JSON without its sign; false: it has more digits than a double.
func decimalOf(number []byte) (d decimal, ok bool) {
	digits, zeros := 0, 0 // zeros since the last digit that is not 0
	fraction := false
	for i, c := range number {
		switch {
		case c == '.':
			fraction = true
		case c == 'e' || c == 'E':
			power, err := strconv.Atoi(text(number[i+1:]))
			if d.exponent += power; err != nil {
				return d, false
			}
			return d.normal(), true
		case c == '-':
		case c == '0' && digits == 0:
			if fraction {
				d.exponent--
			}
		default:
			if !fraction {
				d.exponent++
			}
			if c == '0' {
				zeros++
				continue
			}
			for ; zeros > 0 && digits < len(d.digits); zeros-- {
				d.digits[digits] = '0'
				digits++
			}
			if digits == len(d.digits) {
				return d, false
			}
			d.digits[digits] = c
			digits++
		}
	}
	return d.normal(), true
}

// normal gives zero one form.
func (d decimal) normal() decimal {
	if d.digits[0] == 0 {
		return decimal{}
	}
	return d
}
