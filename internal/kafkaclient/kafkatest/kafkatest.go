// Package kafkatest has what the tests of package kafkaclient and of the sink share.
package kafkatest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"syscall"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
)

// TB is a *testing.T, or a rapid.T.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// Decoded is a record as kafka-go's decoder has it: independent of the encoder here.
type Decoded struct {
	Offset, Time int64 // ms
	Key, Value   []byte
	Headers      []protocol.Header
}

// DecodedBatch is a record batch with its records, which were read from it already.
type DecodedBatch struct {
	*protocol.RecordBatch
	Records []Decoded
}

// Decode reads a sealed batch with kafka-go's decoder, which checks the CRC too.
func Decode(t TB, sealed []byte) DecodedBatch {
	t.Helper()
	var set protocol.RecordSet
	if n, err := set.ReadFrom(bufio.NewReader(bytes.NewReader(sealed))); err != nil || n != int64(len(sealed)) {
		t.Fatalf("%d of %d bytes read: %v", n, len(sealed), err)
	}
	stream, ok := set.Records.(*protocol.RecordStream)
	if !ok || len(stream.Records) != 1 {
		t.Fatalf("not one batch: %T", set.Records)
	}
	batch, ok := stream.Records[0].(*protocol.RecordBatch)
	if !ok {
		t.Fatalf("not a batch: %T", stream.Records[0])
	}
	if set.Version != 2 {
		t.Errorf("magic %d", set.Version)
	}
	return DecodedBatch{batch, DecodeRecords(t, batch)}
}

// DecodeRecords reads all records in their order; an error ends the test.
func DecodeRecords(t TB, r protocol.RecordReader) (all []Decoded) {
	t.Helper()
	for {
		rec, err := r.ReadRecord()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		d := Decoded{Offset: rec.Offset, Time: rec.Time.UnixMilli(), Headers: rec.Headers}
		if d.Key, err = protocol.ReadAll(rec.Key); err != nil {
			t.Fatal(err)
		}
		if d.Value, err = protocol.ReadAll(rec.Value); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
}

// WantHeaders wants these headers, in this order.
func WantHeaders(t TB, got []protocol.Header, want ...protocol.Header) {
	t.Helper()
	same := func(a, b protocol.Header) bool {
		return a.Key == b.Key && string(a.Value) == string(b.Value) && (a.Value == nil) == (b.Value == nil)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("headers\n%q, want\n%q", got, want)
	}
}

// HugeBytes is size bytes that take no memory until they are read.
func HugeBytes(t testing.TB, size int) []byte {
	t.Helper()
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem
}
