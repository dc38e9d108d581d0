package kafkaguard

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/sasl/scram"
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

var cluster = &metadata.Response{
	Brokers: []metadata.ResponseBroker{{NodeID: 1, Host: "a", Port: 9092}, {NodeID: 2, Host: "b", Port: 9092}}, ClusterID: "c",
	Topics: []metadata.ResponseTopic{{Name: "events", Partitions: []metadata.ResponsePartition{{LeaderID: 1, ReplicaNodes: []int32{1, 2}, IsrNodes: []int32{1}}}}},
}

// TestAnswers: what brokers send passes, and is read to its last byte.
func TestAnswers(t *testing.T) {
	for key, res := range answers {
		for version := range key.MaxVersion() + 1 {
			if version < key.MinVersion() || key == protocol.Produce && version < 3 {
				continue
			}
			body := answerOf(t, res, version)
			if err := Check(body, key, version, limit); err != nil {
				t.Errorf("%v v%d: %v", key, version, err)
			}
			if err := Check(body[:len(body)-1], key, version, limit); !errors.Is(err, ErrAnswer) {
				t.Errorf("%v v%d without its last byte: %v", key, version, err)
			}
		}
	}
	for version := range protocol.Metadata.MaxVersion() + 1 {
		if err := Check(answerOf(t, cluster, version), protocol.Metadata, version, limit); err != nil {
			t.Errorf("metadata v%d: %v", version, err)
		}
	}
}

// TestClaims: each count and length of an answer is raised in turn. Whatever passes is decoded in
// the memory that it may take.
func TestClaims(t *testing.T) {
	body := answerOf(t, cluster, 8)
	refused := 0
	for at := range len(body) - 4 {
		for _, claim := range []uint32{1<<31 - 1, 1 << 24, 0xFFFFFFFE, 1 << 31} {
			claimed := slices.Clone(body)
			binary.BigEndian.PutUint32(claimed[at:], claim)
			if Check(claimed, protocol.Metadata, 8, limit) != nil {
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

// sets are record sets by what they have in common.
func sets(t testing.TB) map[string]*fetch.Response {
	of := func(version int8, attributes protocol.Attributes, records ...protocol.Record) *fetch.Response {
		return &fetch.Response{Topics: []fetch.ResponseTopic{{Topic: "events", Partitions: []fetch.ResponsePartition{{
			RecordSet: protocol.RecordSet{Version: version, Attributes: attributes, Records: protocol.NewRecordReader(records...)},
		}}}}}
	}
	record := func(size int) protocol.Record {
		return protocol.Record{Time: time.Unix(1, 0), Key: protocol.NewBytes([]byte("k")), Value: protocol.NewBytes(make([]byte, size)), Headers: []protocol.Header{{Key: "h", Value: []byte("v")}}}
	}
	plain := func(size int) protocol.Record {
		r := record(size)
		r.Headers = nil
		return r
	}
	all := map[string]*fetch.Response{}
	for codec := compress.None; codec <= compress.Zstd; codec++ {
		all[codec.String()] = of(2, protocol.Attributes(codec), record(10), record(1000))
		all[codec.String()+" old"] = of(1, protocol.Attributes(codec), plain(10), plain(1000))
		all[codec.String()+" large"] = of(2, protocol.Attributes(codec), record(2*limit))
		all[codec.String()+" old large"] = of(1, protocol.Attributes(codec), plain(2*limit))
	}
	return all
}

// TestRecords: records pass, and a batch that takes more memory does not, however it is compressed.
func TestRecords(t *testing.T) {
	for name, res := range sets(t) {
		body := answerOf(t, res, 11)
		err := Check(body, protocol.Fetch, 11, limit)
		var over *TooLarge
		if large := strings.Contains(name, "large"); large != errors.As(err, &over) || !large && err != nil {
			t.Errorf("%s: %d bytes give %v", name, len(body), err)
		}
	}
}

// TestRecordClaims: each byte of a batch is changed. Nothing that passes panics kafka-go, or takes
// more memory than it may.
func TestRecordClaims(t *testing.T) {
	for name, res := range sets(t) {
		if strings.Contains(name, "large") {
			continue
		}
		body := answerOf(t, res, 11)
		for at := range min(len(body), 200) {
			for _, value := range []byte{0, 1, 0x7F, 0x80, 0xFE, 0xFF} {
				claimed := slices.Clone(body)
				claimed[at] = value
				if Check(claimed, protocol.Fetch, 11, limit) != nil {
					continue
				}
				if _, allocated, _ := decode(claimed, protocol.Fetch, 11); allocated > blocks {
					t.Errorf("%s: byte %d is %d: %d bytes are allocated", name, at, value, allocated)
				}
			}
		}
	}
}

// FuzzAnswer: an answer that passes is decoded without a panic, and in the memory that it may take.
func FuzzAnswer(f *testing.F) {
	keys := []protocol.ApiKey{}
	for key, res := range answers {
		keys = append(keys, key)
		f.Add(byte(key), byte(key.MaxVersion()), answerOf(f, res, key.MaxVersion()))
	}
	f.Add(byte(protocol.Metadata), byte(8), answerOf(f, cluster, 8))
	for name, res := range sets(f) {
		if !strings.Contains(name, "large") {
			f.Add(byte(protocol.Fetch), byte(11), answerOf(f, res, 11))
		}
	}
	f.Fuzz(func(t *testing.T, kind, number byte, body []byte) {
		key, version := protocol.ApiKey(kind), int16(number)
		if !slices.Contains(keys, key) || version < key.MinVersion() || version > key.MaxVersion() || Check(body, key, version, limit) != nil {
			return
		}
		if _, allocated, _ := decode(body, key, version); allocated > blocks {
			t.Errorf("%v v%d: %d bytes of an answer allocate %d", key, version, len(body), allocated)
		}
	})
}

// TestConn: kafka-go's reads are answered one by one, whatever pieces it writes and reads.
func TestConn(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	d := &Dialer{Limit: limit, Dial: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
	c, err := d.DialContext(t.Context(), "tcp", "broker:9092")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func(id int32) {
		var b bytes.Buffer
		if err := protocol.WriteRequest(&b, 8, id, "me", &metadata.Request{TopicNames: []string{"events"}}); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.CopyN(io.Discard, theirs, int64(b.Len())) }()
		for _, piece := range b.Bytes() {
			if _, err := c.Write([]byte{piece}); err != nil {
				t.Fatal(err)
			}
		}
	}
	answer := func(id uint32, body []byte) {
		frame := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(4+len(body))), id)
		go func() { _, _ = theirs.Write(append(frame, body...)) }()
	}
	body := answerOf(t, cluster, 8)
	ask(7)
	answer(7, body)
	if _, res, err := protocol.ReadResponse(c, protocol.Metadata, 8); err != nil || len(res.(*metadata.Response).Brokers) != 2 {
		t.Fatalf("got %+v, %v", res, err)
	}
	ask(8)
	claimed := slices.Clone(body)
	binary.BigEndian.PutUint32(claimed[4:], 1<<31-1)
	answer(8, claimed)
	if _, err := c.Read(make([]byte, 10)); !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), "2147483647 elements") {
		t.Errorf("2^31-1 brokers: %v", err)
	}
	if _, again := c.Read(make([]byte, 10)); !errors.Is(again, ErrAnswer) {
		t.Errorf("and then: %v", again)
	}
}

// TestLogin: rounds of SCRAM above the bound are refused before they are computed.
func TestLogin(t *testing.T) {
	m, err := scram.Mechanism(scram.SHA512, "u", "p")
	if err != nil {
		t.Fatal(err)
	}
	for rounds, refused := range map[string]bool{"4096": false, "100000": false, "100001": true, "2147483647": true, "99999999999999999999": true, "-1": true} {
		s, first, err := Login(m).Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, nonce, _ := strings.Cut(string(first), "r=")
		_, _, err = s.Next(t.Context(), []byte("r="+nonce+"x,s=c2FsdA==,i="+rounds))
		if (err != nil) != refused {
			t.Errorf("%s rounds: %v", rounds, err)
		}
	}
}
