// The check of answers before kafka-go decodes them: kafka-go allocates as many elements as an
// answer claims to have. The answer to a produce request is decoded here instead.

package kafkaclient

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/findcoordinator"
	"github.com/segmentio/kafka-go/protocol/heartbeat"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/joingroup"
	"github.com/segmentio/kafka-go/protocol/leavegroup"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
	"github.com/segmentio/kafka-go/protocol/offsetfetch"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/protocol/syncgroup"
)

// ErrDamaged says that an answer contradicts its own counts and lengths.
var ErrDamaged = errors.New("the answer is damaged")

// TooLargeError says that an answer would take more memory than it may.
type TooLargeError struct{ Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the answer takes more than %d bytes of memory", e.Limit)
}

// answerTypes are the answers that kafka-go decodes, by the request. CheckAnswer refuses every
// other answer.
var answerTypes = func() map[protocol.ApiKey]reflect.Type {
	all := map[protocol.ApiKey]reflect.Type{}
	for _, res := range []protocol.Message{
		&apiversions.Response{}, &createtopics.Response{}, &deleteResponse{}, &describeconfigs.Response{}, &findcoordinator.Response{},
		&heartbeat.Response{}, &initproducerid.Response{}, &joingroup.Response{}, &leavegroup.Response{}, &listoffsets.Response{},
		&metadata.Response{}, &offsetcommit.Response{}, &offsetfetch.Response{}, &saslauthenticate.Response{}, &saslhandshake.Response{},
		&syncgroup.Response{},
	} {
		all[res.ApiKey()] = reflect.TypeOf(res).Elem()
	}
	return all
}()

// CheckAnswer reports whether a body, without its size and correlation id, is an answer to this
// kind of request and can be decoded in limit bytes of memory. It compares each count and length
// with the bytes that are there, before kafka-go allocates for them.
func CheckAnswer(body []byte, key protocol.ApiKey, version int16, limit int) error {
	typ := answerTypes[key]
	if typ == nil || version > highestVersion(key) {
		return fmt.Errorf("%w: %v v%d is not asked", ErrDamaged, key, version)
	}
	w := &answerWalk{bytesLeft: bytesLeft{rest: body}, version: version, budget: budget{limit, limit}}
	w.passValue(typ)
	return w.err
}

// budget is how much more memory an answer may take.
type budget struct{ left, limit int }

func (b *budget) charge(n int) error {
	if n < 0 || n > b.left {
		return &TooLargeError{b.limit}
	}
	b.left -= n
	return nil
}

// bytesLeft is the part of a body that was not decoded yet. When too few bytes are left it sets
// err, and everything read after that is zero.
type bytesLeft struct {
	rest []byte
	err  error
}

func (b *bytesLeft) setError(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
	}
}

// nextBytes returns the next n bytes.
func (b *bytesLeft) nextBytes(n int) []byte {
	if b.err == nil && (n < 0 || n > len(b.rest)) {
		b.setError("%d bytes are announced, %d are there", n, len(b.rest))
	}
	if b.err != nil {
		return make([]byte, 8)[:min(max(n, 0), 8)]
	}
	next := b.rest[:n]
	b.rest = b.rest[n:]
	return next
}

func (b *bytesLeft) int16() int16 { return int16(binary.BigEndian.Uint16(b.nextBytes(2))) }
func (b *bytesLeft) int32() int32 { return int32(binary.BigEndian.Uint32(b.nextBytes(4))) }
func (b *bytesLeft) int64() int64 { return int64(binary.BigEndian.Uint64(b.nextBytes(8))) }

// count reads the number of elements of an array. least is how many bytes an element has at least,
// so the number is never more than there are bytes for.
func (b *bytesLeft) count(least int) int {
	n := int(b.int32())
	if n > len(b.rest)/least {
		b.setError("it has %d elements in %d bytes", n, len(b.rest))
	}
	if b.err != nil {
		return 0
	}
	return max(n, 0) // -1 means that the array is null
}

// text reads a string into s. It allocates only when the string differs from the one in s.
func (b *bytesLeft) text(s *string) {
	if next := b.nextBytes(int(max(b.int16(), 0))); b.err != nil {
		*s = ""
	} else if *s != string(next) {
		*s = string(next)
	}
}

// answerWalk goes through an answer as kafka-go's decoder does, without allocating anything.
type answerWalk struct {
	bytesLeft
	version int16
	budget  budget
}

func (w *answerWalk) charge(n int) {
	if err := w.budget.charge(n); err != nil && w.err == nil {
		w.err = err
	}
}

// passBytes passes a string, or bytes, of length n. A length below 0 means null.
func (w *answerWalk) passBytes(n int) {
	if n > 0 {
		w.charge(n)
		w.nextBytes(n)
	}
}

// passValue passes a value of a type of kafka-go.
func (w *answerWalk) passValue(typ reflect.Type) {
	if w.err != nil {
		return
	}
	switch typ.Kind() {
	case reflect.Bool, reflect.Int8:
		w.nextBytes(1)
	case reflect.Int16:
		w.nextBytes(2)
	case reflect.Int32:
		w.nextBytes(4)
	case reflect.Int64, reflect.Float64:
		w.nextBytes(8)
	case reflect.String:
		w.passBytes(int(w.int16()))
	case reflect.Struct:
		for _, field := range fieldsOf(typ, w.version) {
			w.passValue(field)
		}
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			w.passBytes(int(w.int32()))
			return
		}
		n := w.count(1) // an element has at least one byte
		w.charge(n * int(typ.Elem().Size()))
		for i := 0; i < n && w.err == nil; i++ {
			w.passValue(typ.Elem())
		}
	default:
		w.setError("%s is not a type of Kafka's", typ)
	}
}

// fieldTypes caches fieldsOf, because it takes long to read the tags of kafka-go's structs.
var fieldTypes sync.Map

type structVersion struct {
	typ     reflect.Type
	version int16
}

// fieldsOf returns the types of the fields that a struct has in a version.
func fieldsOf(typ reflect.Type, version int16) []reflect.Type {
	if list, ok := fieldTypes.Load(structVersion{typ, version}); ok {
		return list.([]reflect.Type) //nolint:forcetypeassert // nothing else is stored
	}
	var list []reflect.Type
	for i := range typ.NumField() {
		if f := typ.Field(i); f.PkgPath == "" && hasVersion(f.Tag.Get("kafka"), version) {
			list = append(list, f.Type)
		}
	}
	fieldTypes.Store(structVersion{typ, version}, list)
	return list
}

// hasVersion reports whether the field with this tag of kafka-go's, such as
// "min=v0,max=v5|min=v6,max=v7,compact", exists in a version.
func hasVersion(tag string, version int16) bool {
	for part := range strings.SplitSeq(tag, "|") {
		low, high := -1, -1
		for option := range strings.SplitSeq(part, ",") {
			name, value, _ := strings.Cut(option, "=")
			number, err := strconv.Atoi(strings.TrimPrefix(value, "v"))
			switch {
			case err != nil:
			case name == "min":
				low = number
			case name == "max":
				high = number
			}
		}
		if low <= int(version) && int(version) <= high {
			return true
		}
	}
	return false
}

// readProduceAnswer decodes the body of an answer to a produce request of version v3 to v8 into
// res, and uses res's memory again: what an earlier answer said is gone. What is left behind the
// answer is ignored, as kafka-go does.
//
// kafka-go's decoder is not used, for three reasons. If the bytes end too early, it returns a
// missing partition as partition 0 with code 0, which is a confirm, and notices the end only later.
// It allocates as many elements as an answer claims to have, which may be more than fit into
// memory. And it makes two thirds of the allocations of a request.
func readProduceAnswer(body []byte, version int16, res *produce.Response) error {
	b := &bytesLeft{rest: body}
	res.Topics = resized(res.Topics, b.count(2+4))
	for i := range res.Topics {
		topic := &res.Topics[i]
		b.text(&topic.Topic)
		topic.Partitions = resized(topic.Partitions, b.count(4+2+8+8))
		for j := range topic.Partitions {
			p := &topic.Partitions[j]
			p.Partition, p.ErrorCode, p.BaseOffset, p.LogAppendTime = b.int32(), b.int16(), b.int64(), b.int64()
			if version >= 5 {
				p.LogStartOffset = b.int64()
			}
			if version < 8 {
				continue
			}
			p.RecordErrors = resized(p.RecordErrors, b.count(4+2))
			for k := range p.RecordErrors {
				p.RecordErrors[k].BatchIndex = b.int32()
				b.text(&p.RecordErrors[k].BatchIndexErrorMessage)
			}
			b.text(&p.ErrorMessage)
		}
	}
	res.ThrottleTimeMs = b.int32()
	return b.err
}

// resized returns s with n elements. Each is what it was before, or zero.
func resized[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
