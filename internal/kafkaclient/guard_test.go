package kafkaclient

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/heartbeat"
	"github.com/segmentio/kafka-go/protocol/joingroup"
	"github.com/segmentio/kafka-go/protocol/leavegroup"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/syncgroup"
)

const (
	limit = 1 << 20
	// kafka-go's decoder of lz4 takes two blocks of 4 MiB, whatever comes
	blocks = 16 << 20
)

// answerOf is an answer as a broker sends it, without its size and id.
func answerOf(t testing.TB, res protocol.Message, version int16) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := protocol.WriteResponse(&b, version, 1, res); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()[8:]
}

// decode is what kafka-go makes of an answer, and the bytes that it allocates meanwhile.
func decode(body []byte, key protocol.ApiKey, version int16) (res protocol.Message, allocated uint64, err error) {
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(4+len(body))), 0, 0, 0, 1)
	frame = append(frame, body...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, res, err = protocol.ReadResponse(bytes.NewReader(frame), key, version)
	runtime.ReadMemStats(&after)
	return res, after.TotalAlloc - before.TotalAlloc, err
}

var someCluster = &metadata.Response{
	Brokers: []metadata.ResponseBroker{{NodeID: 1, Host: "a", Port: 9092}, {NodeID: 2, Host: "b", Port: 9092}}, ClusterID: "c",
	Topics: []metadata.ResponseTopic{{Name: "events", Partitions: []metadata.ResponsePartition{{LeaderID: 1, ReplicaNodes: []int32{1, 2}, IsrNodes: []int32{1}}}}},
}

// newAnswer is an empty answer of a kind.
func newAnswer(key protocol.ApiKey) protocol.Message {
	return reflect.New(answerTypes[key]).Interface().(protocol.Message)
}

// TestAnswers: what brokers send passes, and is read to its last byte.
func TestAnswers(t *testing.T) {
	for key := range answerTypes {
		for version := key.MinVersion(); version <= highestVersion(key); version++ {
			body := answerOf(t, newAnswer(key), version)
			if err := CheckAnswer(body, key, version, limit); err != nil {
				t.Errorf("%v v%d: %v", key, version, err)
			}
			if err := CheckAnswer(body[:len(body)-1], key, version, limit); !errors.Is(err, ErrDamaged) {
				t.Errorf("%v v%d without its last byte: %v", key, version, err)
			}
		}
	}
	for _, key := range []protocol.ApiKey{protocol.Fetch, protocol.InitProducerId} {
		if err := CheckAnswer(nil, key, highestVersion(key)+1, limit); !errors.Is(err, ErrDamaged) {
			t.Errorf("what is not asked: %v", err)
		}
	}
	for version := range protocol.Metadata.MaxVersion() + 1 {
		if err := CheckAnswer(answerOf(t, someCluster, version), protocol.Metadata, version, limit); err != nil {
			t.Errorf("metadata v%d: %v", version, err)
		}
	}
}

// TestCodes: the group's word that a member has to join again, as Kafka's protocol writes it, is
// read as that. With kafka-go's own encoder a wrong order of fields would be seen by nobody.
func TestCodes(t *testing.T) {
	codes := map[protocol.ApiKey]func(protocol.Message) int16{
		protocol.Heartbeat:  func(m protocol.Message) int16 { return m.(*heartbeat.Response).ErrorCode },
		protocol.LeaveGroup: func(m protocol.Message) int16 { return m.(*leavegroup.Response).ErrorCode },
		protocol.JoinGroup:  func(m protocol.Message) int16 { return m.(*joingroup.Response).ErrorCode },
		protocol.SyncGroup:  func(m protocol.Message) int16 { return m.(*syncgroup.Response).ErrorCode },
	}
	// the version from which on an answer begins with the throttle time
	throttled := map[protocol.ApiKey]int16{protocol.Heartbeat: 1, protocol.LeaveGroup: 1, protocol.JoinGroup: 2, protocol.SyncGroup: 1}
	for key, codeOf := range codes {
		for version := key.MinVersion(); version <= highestVersion(key); version++ {
			var body []byte
			if version >= throttled[key] {
				body = append(body, 0, 0, 0, 0)
			}
			body = binary.BigEndian.AppendUint16(body, uint16(kafkago.RebalanceInProgress))
			body = append(body, make([]byte, 32)...) // empty strings and arrays
			res, _, err := decode(body, key, version)
			if err != nil {
				t.Fatalf("%v v%d: %v", key, version, err)
			}
			if code := codeOf(res); kafkago.Error(code) != kafkago.RebalanceInProgress {
				t.Errorf("%v v%d: the code is %d", key, version, code)
			}
		}
	}
}

// TestClaims: each count and length of an answer is raised in turn. Whatever passes is decoded in
// the memory that it may take.
func TestClaims(t *testing.T) {
	body := answerOf(t, someCluster, 8)
	refused := 0
	for at := range len(body) - 4 {
		for _, claim := range []uint32{1<<31 - 1, 1 << 24, 0xFFFFFFFE, 1 << 31} {
			claimed := slices.Clone(body)
			binary.BigEndian.PutUint32(claimed[at:], claim)
			if CheckAnswer(claimed, protocol.Metadata, 8, limit) != nil {
				refused++
				continue
			}
			if _, allocated, _ := decode(claimed, protocol.Metadata, 8); allocated > 2*limit {
				t.Errorf("%d at byte %d: %d bytes are allocated", claim, at, allocated)
			}
		}
	}
	if refused == 0 {
		t.Error("no claim is refused")
	}
}

// FuzzAnswer: an answer that passes is decoded without a panic, and in the memory that it may take.
func FuzzAnswer(f *testing.F) {
	keys := []protocol.ApiKey{protocol.Fetch}
	for key := range answerTypes {
		keys = append(keys, key)
		f.Add(byte(key), byte(highestVersion(key)), answerOf(f, newAnswer(key), highestVersion(key)))
	}
	f.Add(byte(protocol.Metadata), byte(8), answerOf(f, someCluster, 8))
	for name, res := range sets(f) {
		if !strings.Contains(name, "large") {
			f.Add(byte(protocol.Fetch), byte(fetchVersion), answerOf(f, res, fetchVersion))
		}
	}
	f.Fuzz(func(t *testing.T, kind, number byte, body []byte) {
		key, version := protocol.ApiKey(kind), int16(number)
		if !slices.Contains(keys, key) || version < key.MinVersion() || version > highestVersion(key) {
			return
		}
		if key == protocol.Fetch {
			if took := fetched(body); took > blocks {
				t.Errorf("%d bytes of records allocate %d", len(body), took)
			}
			return
		}
		if CheckAnswer(body, key, version, limit) != nil {
			return
		}
		if _, allocated, _ := decode(body, key, version); allocated > blocks {
			t.Errorf("%v v%d: %d bytes of an answer allocate %d", key, version, len(body), allocated)
		}
	})
}

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
			noError(t, readProduceAnswer(body, version, &res))
		}
		if got := fmt.Sprintf("%+v", res); got != fmt.Sprintf("%+v", *want) {
			t.Errorf("v%d: got  %s\nwant %+v", version, got, *want)
		}
		for n := range body {
			if err := readProduceAnswer(body[:n], version, &res); err == nil {
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
		if err := readProduceAnswer(body, 8, &res); err == nil || len(res.Topics) > 0 {
			t.Errorf("%v, %d topics", err, len(res.Topics))
		}
	}); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

func TestReadProducedAllocates(t *testing.T) {
	body := encodedAnswer(t, 8, someAnswer())
	var res produce.Response
	if n := testing.AllocsPerRun(100, func() { noError(t, readProduceAnswer(body, 8, &res)) }); n > 0 {
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
		err := readProduceAnswer(body, version, &fresh)
		if again := readProduceAnswer(body, version, &res); fmt.Sprint(again) != fmt.Sprint(err) {
			t.Fatalf("%v, then %v", err, again)
		}
		if err != nil && strings.Contains(err.Error(), "elements in") {
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
