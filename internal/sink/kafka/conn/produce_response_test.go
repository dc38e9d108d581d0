package conn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
)

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// encodedAnswer is the body that kafka-go makes of an answer.
func encodedAnswer(t testing.TB, version int16, res *produce.Response) []byte {
	t.Helper()
	var frame bytes.Buffer
	noError(t, protocol.WriteResponse(&frame, version, 1, res))
	return frame.Bytes()[8:]
}

// oracle is what kafka-go reads.
func oracle(version int16, body []byte) (*produce.Response, error) {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	frame = append(binary.BigEndian.AppendUint32(frame, 1), body...)
	_, msg, err := protocol.ReadResponse(bytes.NewReader(frame), protocol.Produce, version)
	if err != nil {
		return nil, err
	}
	return msg.(*produce.Response), nil
}

// someAnswer has all that an answer may have.
func someAnswer() *produce.Response {
	return &produce.Response{ThrottleTimeMs: 7, Topics: []produce.ResponseTopic{
		{Topic: "outbox.event.order", Partitions: []produce.ResponsePartition{
			{Partition: 3, BaseOffset: 1 << 40, LogAppendTime: -1, LogStartOffset: 5},
			{Partition: 1, ErrorCode: 87, BaseOffset: -1, LogAppendTime: -1, LogStartOffset: -1, ErrorMessage: "invalid", RecordErrors: []produce.ResponseError{
				{BatchIndex: 2, BatchIndexErrorMessage: "no key"}, {BatchIndex: 4},
			}},
		}},
		{Topic: "none"},
		{Topic: "", Partitions: []produce.ResponsePartition{{Partition: 9, ErrorCode: -1}}},
	}}
}

// The decoder reads what kafka-go does, also over the memory of another answer, and of an answer
// that is cut off anywhere nothing.
func TestReadProduced(t *testing.T) {
	for version := int16(3); version <= 8; version++ {
		body := encodedAnswer(t, version, someAnswer())
		want, err := oracle(version, body)
		noError(t, err)
		var res produce.Response
		other := &produce.Response{Topics: []produce.ResponseTopic{{Topic: "a", Partitions: make([]produce.ResponsePartition, 5)}}}
		for _, body := range [][]byte{body, encodedAnswer(t, version, other), body, append(bytes.Clone(body), 1, 2, 3)} {
			noError(t, readProduced(body, version, &res))
		}
		if got := fmt.Sprintf("%+v", res); got != fmt.Sprintf("%+v", *want) {
			t.Errorf("v%d: got  %s\nwant %+v", version, got, *want)
		}
		for n := range body {
			if err := readProduced(body[:n], version, &res); err == nil {
				t.Errorf("v%d: %d of %d bytes are an answer", version, n, len(body))
			}
		}
	}
}

// An array that claims more elements than there are bytes for costs no memory.
func TestReadProducedHuge(t *testing.T) {
	body := encodedAnswer(t, 8, someAnswer())
	copy(body, []byte{0x7f, 0xff, 0xff, 0xff})
	var res produce.Response
	if n := testing.AllocsPerRun(10, func() {
		if err := readProduced(body, 8, &res); err == nil || len(res.Topics) > 0 {
			t.Errorf("%v, %d topics", err, len(res.Topics))
		}
	}); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

func TestReadProducedAllocates(t *testing.T) {
	body := encodedAnswer(t, 8, someAnswer())
	var res produce.Response
	if n := testing.AllocsPerRun(100, func() { noError(t, readProduced(body, 8, &res)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzReadProduced has kafka-go's decoder as its oracle, where that does not run out of memory.
func FuzzReadProduced(f *testing.F) {
	for version := int16(3); version <= 8; version++ {
		body := encodedAnswer(f, version, someAnswer())
		f.Add(version, body)
		f.Add(version, body[:len(body)/2])
	}
	f.Add(int16(8), []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	var res produce.Response // with the memory of all inputs before
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		version = 3 + (version%6+6)%6
		var fresh produce.Response
		err := readProduced(body, version, &fresh)
		if again := readProduced(body, version, &res); fmt.Sprint(again) != fmt.Sprint(err) {
			t.Fatalf("%v, then %v", err, again)
		}
		if err != nil && !errors.Is(err, errShort) {
			return // an array that claims too much
		}
		want, wrong := oracle(version, body)
		if (err != nil) != (wrong != nil) {
			t.Fatalf("%v, kafka-go: %v", err, wrong)
		}
		if err == nil && fmt.Sprintf("%+v", fresh) != fmt.Sprintf("%+v", *want) {
			t.Fatalf("got  %+v\nwant %+v", fresh, *want)
		}
	})
}
