// Package kafkaguard bounds what a Kafka broker can make kafka-go do. kafka-go allocates as many
// elements as an answer says that it has, decompresses whatever comes, and computes as many rounds
// of SCRAM as it is asked for. Here each count and length is compared with the bytes that are there
// before kafka-go sees them.
package kafkaguard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/segmentio/kafka-go/protocol"
)

// ErrAnswer is the error of an answer that is not as its own counts and lengths say.
var ErrAnswer = errors.New("the answer is damaged")

// TooLarge is the error of an answer that takes more memory than is given to it.
type TooLarge struct{ Limit int }

func (e *TooLarge) Error() string {
	return fmt.Sprintf("the answer takes more than %d bytes of memory", e.Limit)
}

// ReadBody reads n bytes into b's memory: no more is allocated than twice what has come.
func ReadBody(r io.Reader, b []byte, n int) ([]byte, error) {
	const piece = 64 << 10
	for b = b[:0]; len(b) < n; {
		more := min(n-len(b), max(piece, len(b), cap(b)-len(b)))
		if free := cap(b) - len(b); free < more {
			b = append(make([]byte, 0, len(b)+more), b...)
		}
		next := b[len(b) : len(b)+more]
		if _, err := io.ReadFull(r, next); err != nil {
			return b, err
		}
		b = b[:len(b)+more]
	}
	return b, nil
}

// Check reports whether an answer, without its size and correlation id, is one to a request of that
// kind, and can be decoded in less than limit bytes of memory. Of an unknown kind nothing is
// checked.
func Check(body []byte, key protocol.ApiKey, version int16, limit int) error {
	if res := answers[key]; res != nil {
		return check(body, res, version, limit)
	}
	return nil
}

func check(body []byte, res protocol.Message, version int16, limit int) error {
	typ := reflect.TypeOf(res).Elem()
	w := &walk{rest: body, version: version, flexible: isFlexible(typ, version), budget: budget{limit, limit}}
	if w.flexible {
		w.tags(nil)
	}
	w.value(typ)
	return w.err
}

// budget is the memory that may still be taken.
type budget struct{ left, limit int }

func (b *budget) take(n int) error {
	if n < 0 || n > b.left {
		return &TooLarge{b.limit}
	}
	b.left -= n
	return nil
}

// walk goes through an answer as kafka-go's decoder does, and allocates nothing for it.
type walk struct {
	rest     []byte
	version  int16
	flexible bool
	budget   budget
	err      error
}

func (w *walk) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("%w: "+format, append([]any{ErrAnswer}, args...)...)
	}
}

// next is the next n bytes.
func (w *walk) next(n int) []byte {
	if w.err == nil && (n < 0 || n > len(w.rest)) {
		w.fail("%d bytes are announced, %d are there", n, len(w.rest))
	}
	if w.err != nil {
		return make([]byte, 8)[:min(max(n, 0), 8)]
	}
	b := w.rest[:n]
	w.rest = w.rest[n:]
	return b
}

func (w *walk) uvarint() int {
	v, n := binary.Uvarint(w.rest)
	if n <= 0 || v > 1<<31 {
		w.fail("a number is too large, or cut")
		return 0
	}
	w.next(n)
	return int(v)
}

// length is that of a string, of bytes or of an array: below 0 it is null.
func (w *walk) length(size int) int {
	switch {
	case w.flexible:
		return w.uvarint() - 1
	case size == 2:
		return int(int16(binary.BigEndian.Uint16(w.next(2))))
	}
	return int(int32(binary.BigEndian.Uint32(w.next(4))))
}

func (w *walk) text(size int) {
	if n := w.length(size); n > 0 {
		w.take(n)
		w.next(n)
	}
}

func (w *walk) take(n int) {
	if err := w.budget.take(n); err != nil && w.err == nil {
		w.err = err
	}
}

var recordSet = reflect.TypeFor[protocol.RecordSet]()

// value passes a value of a type.
func (w *walk) value(typ reflect.Type) {
	switch {
	case w.err != nil:
		return
	case typ == recordSet:
		w.records()
		return
	}
	switch typ.Kind() {
	case reflect.Bool, reflect.Int8:
		w.next(1)
	case reflect.Int16:
		w.next(2)
	case reflect.Int32:
		w.next(4)
	case reflect.Int64, reflect.Float64:
		w.next(8)
	case reflect.String:
		w.text(2)
	case reflect.Struct:
		w.fields(typ)
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			w.text(4)
			return
		}
		w.array(typ.Elem())
	default:
		w.fail("%s is not a type of Kafka's", typ)
	}
}

func (w *walk) array(elem reflect.Type) {
	n := w.length(4)
	if n > len(w.rest) { // an element has a byte at least
		w.fail("it has %d elements in %d bytes", n, len(w.rest))
		return
	}
	w.take(max(n, 0) * int(elem.Size()))
	for i := 0; i < n && w.err == nil; i++ {
		w.value(elem)
	}
}

func (w *walk) fields(typ reflect.Type) {
	tagged := map[int]reflect.Type(nil)
	for _, f := range fieldsOf(typ, w.version) {
		if f.tag == untagged {
			w.value(f.typ)
			continue
		}
		if tagged == nil {
			tagged = map[int]reflect.Type{}
		}
		tagged[f.tag] = f.typ
	}
	if w.flexible {
		w.tags(tagged)
	}
}

// tags passes the tagged fields at the end of a struct.
func (w *walk) tags(known map[int]reflect.Type) {
	n := w.uvarint()
	if n > len(w.rest) {
		w.fail("it has %d tags in %d bytes", n, len(w.rest))
	}
	for i := 0; i < n && w.err == nil; i++ {
		tag, size := w.uvarint(), w.uvarint()
		if typ := known[tag]; typ != nil {
			w.value(typ)
		} else {
			w.take(size)
			w.next(size)
		}
	}
}

const (
	untagged = -2 // the field is in its place
	noTag    = -1 // it only says that the message has tags from this version on
)

// field is one of a struct.
type field struct {
	typ reflect.Type
	tag int
}

// known are the fields of kafka-go's structs, by version: reading their tags takes long.
var known sync.Map

type structOf struct {
	typ     reflect.Type
	version int16
}

// fieldsOf are the fields that a struct has in a version.
func fieldsOf(typ reflect.Type, version int16) []field {
	if list, ok := known.Load(structOf{typ, version}); ok {
		return list.([]field) //nolint:forcetypeassert // nothing else is stored
	}
	var list []field
	for i := range typ.NumField() {
		f := typ.Field(i)
		if tag, ok := tagOf(&f, version); ok {
			list = append(list, field{f.Type, tag})
		}
	}
	known.Store(structOf{typ, version}, list)
	return list
}

// tagOf is the number of a field's tag in a version. ok is false if it is not in that version.
func tagOf(f *reflect.StructField, version int16) (tag int, ok bool) {
	if f.PkgPath != "" && f.Name != "_" {
		return 0, false
	}
	for part := range strings.SplitSeq(f.Tag.Get("kafka"), "|") {
		tag, low, high := untagged, -1, -1
		for option := range strings.SplitSeq(part, ",") {
			name, value, _ := strings.Cut(option, "=")
			number, err := strconv.Atoi(strings.TrimPrefix(value, "v"))
			switch {
			case name == "tag" && err != nil:
				tag = noTag
			case name == "tag":
				tag = number
			case name == "min":
				low = number
			case name == "max":
				high = number
			}
		}
		if low <= int(version) && int(version) <= high {
			return tag, true
		}
	}
	return 0, false
}

// isFlexible reports whether a message has tags in a version.
func isFlexible(typ reflect.Type, version int16) bool {
	for ; version >= 0; version-- {
		for _, f := range fieldsOf(typ, version) {
			if f.tag != untagged {
				return true
			}
		}
	}
	return false
}
