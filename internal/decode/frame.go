// The bounds-checked reading of one frame.

package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

var errShort = errors.New("it ends too early")

// frame is the unread rest of a frame. A read beyond the end returns zeroes and sets err, which
// stays set, so fields are read one by one and the error is checked once, at the end.
type frame struct {
	rest    []byte
	err     error
	leftOut bool // a tuple may have a LeftOutValue
}

// setError sets err, unless it is set, and drops the rest.
func (f *frame) setError(err error) {
	if f.err == nil {
		f.err = err
	}
	f.rest = nil
}

// checkEnd returns the first error of the reads. Bytes that are left over are an error, too: then
// the fields were not what they seemed.
func (f *frame) checkEnd() error {
	if f.err == nil && len(f.rest) > 0 {
		f.err = fmt.Errorf("%d bytes follow its end", len(f.rest))
	}
	return f.err
}

// takeBytes reads n bytes. Beyond the end of the frame it returns up to 8 zeroes, and sets err.
func (f *frame) takeBytes(n uint64) []byte {
	if uint64(len(f.rest)) < n {
		f.setError(errShort)
		return make([]byte, min(n, 8))
	}
	v := f.rest[:n:n]
	f.rest = f.rest[n:]
	return v
}

func (f *frame) byte() byte     { return f.takeBytes(1)[0] }
func (f *frame) uint16() uint16 { return binary.BigEndian.Uint16(f.takeBytes(2)) }
func (f *frame) uint32() uint32 { return binary.BigEndian.Uint32(f.takeBytes(4)) }
func (f *frame) uint64() uint64 { return binary.BigEndian.Uint64(f.takeBytes(8)) }

// bytes reads a length and as many bytes.
func (f *frame) bytes() []byte { return f.takeBytes(uint64(f.uint32())) }

// string reads up to a zero byte, which it passes.
func (f *frame) string() []byte {
	end := bytes.IndexByte(f.rest, 0)
	if end < 0 {
		f.setError(errShort)
		return nil
	}
	v := f.rest[:end]
	f.rest = f.rest[end+1:]
	return v
}

// time reads microseconds since 2000-01-01 UTC.
func (f *frame) time() time.Time {
	const epoch = 946_684_800_000_000 // 2000-01-01 in microseconds since 1970-01-01
	return time.UnixMicro(int64(f.uint64()) + epoch).UTC()
}

// expectTag reads the byte that announces a tuple.
func (f *frame) expectTag(tag byte) {
	if got := f.byte(); f.err == nil && got != tag {
		f.setError(fmt.Errorf("tuple is announced by %q, not by %q", got, tag))
	}
}

// value is one column of a tuple.
type value struct {
	data []byte // aliases the frame; nil exactly when there is none
	kind byte   // 't' text, 'n' NULL, 'u' unchanged TOAST, 'b' binary, or LeftOutValue
}

// size is how many bytes the value has in the row; data of a LeftOutValue is that number.
func (v *value) size() int64 {
	if v.kind == LeftOutValue {
		return int64(binary.BigEndian.Uint32(v.data))
	}
	return int64(len(v.data))
}

// What stands for a large value that was left out while the stream was read (source.KeepOfLarge).
// No server sends them.
const (
	// LeftOutValue is the kind of a column of which a tuple has the length alone, in four bytes.
	LeftOutValue = 'l'
	// LeftOutMessage is the type of a frame that is a logical message without its content.
	LeftOutMessage = 'L'
)

// leftOutValue reads a LeftOutValue. Any other kind is an error: tuple reads those that are known.
func (f *frame) leftOutValue(column int, kind byte) []byte {
	if kind != LeftOutValue || !f.leftOut {
		f.setError(fmt.Errorf("column %d is of the unknown kind %q", column, kind))
	}
	return f.takeBytes(4)
}

// tuple reads a tuple of len(values) columns into values.
func (f *frame) tuple(values []value) {
	if n := int(f.uint16()); f.err == nil && n != len(values) {
		f.setError(fmt.Errorf("tuple has %d columns, its relation %d", n, len(values)))
	}
	for i := range values {
		kind := f.byte()
		var data []byte
		switch kind {
		case 't', 'b':
			data = f.bytes()
		case 'n', 'u':
		default:
			data = f.leftOutValue(i, kind)
		}
		if f.err != nil {
			return
		}
		values[i] = value{data, kind}
	}
}
