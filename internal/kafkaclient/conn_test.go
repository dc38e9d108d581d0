package kafkaclient

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/kafkatest"
)

// longTimeout is of requests that are answered.
const longTimeout = time.Minute

// TestProduce has one request of several topics and partitions, read by kafka-go's own decoder.
func TestProduce(t *testing.T) {
	f := newFake(t, func(f *fake, c net.Conn) {
		f.greet(c)
		id, req := f.Next(c)
		got, ok := req.(*produce.Request)
		if !ok {
			f.Errorf("got a %T", req)
			return
		}
		if got.Acks != -1 || got.Timeout != 5000 || len(got.Topics) != 2 {
			f.Errorf("acks %d, timeout %d, %d topics", got.Acks, got.Timeout, len(got.Topics))
		}
		for i, topic := range got.Topics {
			if want := fmt.Sprint("topic-", i); topic.Topic != want || len(topic.Partitions) != 3 {
				f.Errorf("topic %q with %d partitions", topic.Topic, len(topic.Partitions))
			}
			for p, part := range topic.Partitions {
				records := kafkatest.DecodeRecords(f, part.RecordSet.Records)
				if int(part.Partition) != p || len(records) != p+1 || len(records[p].Value) != 40_000*(p+1) {
					f.Errorf("partition %d has %d records", part.Partition, len(records))
				}
			}
		}
		f.answer(c, 8, id, &produce.Response{Topics: []produce.ResponseTopic{{Topic: "topic-0", Partitions: []produce.ResponsePartition{{
			ErrorCode: 87, RecordErrors: []produce.ResponseError{{BatchIndex: 2, BatchIndexErrorMessage: "no key"}}, ErrorMessage: "invalid",
		}}}}})
		untilClosed(c)
	})
	req := &rawproduce.Request{Acks: -1, Timeout: 5000}
	codecs := []compress.Compression{compress.None, compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd}
	for i := range 2 {
		topic := rawproduce.RequestTopic{Topic: fmt.Sprint("topic-", i)}
		for p := range 3 {
			b := NewBatch(codecs[(i+p)%len(codecs)])
			for n := range p + 1 {
				b.Add(&Record{Value: make([]byte, 40_000*(n+1)), Time: 1})
			}
			topic.Partitions = append(topic.Partitions, rawproduce.RequestPartition{
				Partition: int32(p), RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(b.Seal(1, 0, 0))},
			})
		}
		req.Topics = append(req.Topics, topic)
	}
	c := f.dial()
	res, err := RoundTripAs[*produce.Response](t.Context(), c, longTimeout, req)
	if err != nil {
		t.Fatal(err)
	}
	if part := res.Topics[0].Partitions[0]; part.ErrorCode != 87 || part.RecordErrors[0].BatchIndex != 2 || part.ErrorMessage != "invalid" {
		t.Errorf("got %+v", part)
	}
	if !c.Usable() {
		t.Error("not usable after an answer")
	}
}

// silent answers nothing but the versions, and says when a request is in.
func silent(received chan<- struct{}) func(*fake, net.Conn) {
	return func(f *fake, c net.Conn) {
		f.greet(c)
		if _, req := f.Next(c); req != nil {
			close(received)
		}
		untilClosed(c)
	}
}

// wantBroken wants an error and a connection that carries no more requests.
func wantBroken(t *testing.T, c *Conn, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	if c.Usable() {
		t.Error("the connection is taken for usable")
	}
	if _, err := c.RoundTrip(context.Background(), longTimeout, &metadata.Request{}); err == nil {
		t.Error("a request after it has an answer")
	}
}

// A connection that is watched carries requests afterwards, however often; its end is noticed while
// it is watched.
func TestWatch(t *testing.T) {
	quit := make(chan struct{})
	c := newFake(t, func(f *fake, c net.Conn) {
		f.greet(c)
		for range 3 {
			id, req := f.Next(c)
			if _, ok := req.(*metadata.Request); !ok {
				f.Errorf("got a %T", req)
				return
			}
			f.answer(c, 8, id, &metadata.Response{ControllerID: 7})
		}
		<-quit
	}).dial()
	ended := make(chan struct{}, 1)
	for range 3 {
		c.Watch(ended)()
		unwatch := c.Watch(ended)
		runtime.Gosched()
		unwatch()
		if res, err := RoundTripAs[*metadata.Response](t.Context(), c, longTimeout, &metadata.Request{}); err != nil || res.ControllerID != 7 {
			t.Fatalf("%v %v", res, err)
		}
	}
	unwatch := c.Watch(ended)
	defer unwatch()
	if len(ended) > 0 || !c.Usable() {
		t.Fatal("ended before the broker has ended it")
	}
	close(quit)
	<-ended
	if c.Usable() {
		t.Error("the connection is taken for usable")
	}
}

// A request breaks with its context, at its timeout and when the connection is closed. For a
// context that has ended nothing is sent.
func TestRoundTripBreaks(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		early   bool // break comes before the request
		breaks  func(cancel func(), c *Conn)
		want    error
	}{
		"context ends":      {time.Hour, false, func(cancel func(), _ *Conn) { cancel() }, context.Canceled},
		"context has ended": {time.Hour, true, func(cancel func(), _ *Conn) { cancel() }, context.Canceled},
		"no answer":         {20 * time.Millisecond, false, func(func(), *Conn) {}, os.ErrDeadlineExceeded},
		"closed":            {time.Hour, false, func(_ func(), c *Conn) { c.Close() }, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			received := make(chan struct{})
			f := newFake(t, silent(received))
			conn := f.dial()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.early {
				c.breaks(cancel, conn)
			} else {
				go func() {
					<-received
					c.breaks(cancel, conn)
				}()
			}
			_, err := conn.RoundTrip(ctx, c.timeout, &metadata.Request{})
			wantBroken(t, conn, err, c.want)
			<-f.gone
			select {
			case <-received:
				if c.early {
					t.Error("the request was sent")
				}
			default:
				if !c.early {
					t.Error("the request was not sent")
				}
			}
		})
	}
}

func TestOddAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer, want string
	}{
		"nothing":           {"", "closed the connection"},
		"half a header":     {"\x00\x00\x00", "closed the connection"},
		"a TLS alert":       {"\x15\x03\x01\x00\x02\x02\x16", "expects TLS"},
		"HTTP":              {"HTTP/1.1 400 Bad Request\r\n\r\n", "not Kafka's"},
		"negative":          {"\xff\xff\xff\xff\x00\x00\x00\x01", "not Kafka's"},
		"another request":   {"\x00\x00\x00\x0a\x00\x00\x00\x63\x00\x00\x00\x00\x00\x00", "request 99"},
		"half of a body":    {"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x00", "unexpected EOF"},
		"an error code":     {"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x23\x00\x00\x00\x00", "Unsupported Version"},
		"no Produce at all": {"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00", "no Produce request"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, func(f *fake, conn net.Conn) {
				f.Next(conn)
				if _, err := io.WriteString(conn, c.answer); err != nil {
					f.Error(err)
				}
			})
			conn, err := Dial(t.Context(), &f.opts, f.addr)
			if err == nil {
				conn.Close()
				t.Fatal("connected")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), f.addr) {
				t.Errorf("got %v, want %q and the address", err, c.want)
			}
		})
	}
}

func TestVersions(t *testing.T) {
	for want, offer := range map[string]apiversions.ApiKeyResponse{
		"has Produce v0 to v2, needed is one of v3 to v8": {ApiKey: int16(protocol.Produce), MaxVersion: 2},
		"has Produce v9 to v20":                           {ApiKey: int16(protocol.Produce), MinVersion: 9, MaxVersion: 20},
	} {
		f := newFake(t, func(f *fake, c net.Conn) {
			f.offers[0] = offer
			f.greet(c)
			untilClosed(c)
		})
		if _, err := Dial(t.Context(), &f.opts, f.addr); !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v", err)
		}
	}
	f := newFake(t, func(f *fake, c net.Conn) {
		f.offers[0].MaxVersion = 5
		f.greet(c)
		untilClosed(c)
	})
	// InitProducerId from v2 on is flexible, and kafka-go's decoder trusts the tags.
	if c := f.dial(); c.Versions[protocol.Produce] != 5 || c.Versions[protocol.Metadata] != 8 || c.Versions[protocol.InitProducerId] != 1 {
		t.Errorf("got %v", c.Versions)
	}
}

// Metadata of before v7 knows no epochs of leaders.
func TestEpochs(t *testing.T) {
	for version, want := range map[int16]int32{6: -1, 7: 3} {
		f := newFake(t, func(f *fake, c net.Conn) {
			f.offers[1].MaxVersion = version
			f.greet(c)
			id, _ := f.Next(c)
			f.answer(c, version, id, &metadata.Response{Topics: []metadata.ResponseTopic{{Partitions: []metadata.ResponsePartition{{LeaderEpoch: 3}}}}})
		})
		res, err := RoundTripAs[*metadata.Response](t.Context(), f.dial(), longTimeout, &metadata.Request{})
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Topics[0].Partitions[0].LeaderEpoch; got != want {
			t.Errorf("v%d: epoch %d, want %d", version, got, want)
		}
	}
}

// The end of an idle connection is noticed before the next request, also by one that nobody
// watches, and so is what was not asked for.
func TestNotUsableAfterItsEnd(t *testing.T) {
	for name, end := range map[string]func(net.Conn){
		"an end": func(c net.Conn) { c.Close() },
		"bytes":  func(c net.Conn) { _, _ = c.Write([]byte{0}) },
	} {
		quit := make(chan struct{})
		c := newFake(t, func(f *fake, c net.Conn) {
			f.greet(c)
			<-quit
			end(c)
			untilClosed(c)
		}).dial()
		if allocs := testing.AllocsPerRun(100, func() {
			if !c.Usable() {
				t.Fatalf("%s: not usable before it", name)
			}
		}); allocs > 0 {
			t.Errorf("%s: %.0f allocations before each request", name, allocs)
		}
		close(quit)
		sock, err := c.socket.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := sock.Control(func(fd uintptr) { // waits until it has come
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
		}); err != nil || c.Usable() {
			t.Errorf("%s is not noticed, %v", name, err)
		}
	}
}

func TestUsable(t *testing.T) {
	c := newFake(t, func(f *fake, c net.Conn) {
		f.greet(c)
		untilClosed(c)
	}).dial()
	if !c.Usable() {
		t.Error("a new connection is not usable")
	}
	c.usedAt = time.Now().Add(-maxIdle)
	if c.Usable() {
		t.Error("usable after a long silence")
	}
	c.usedAt, c.Expires = time.Now(), time.Now().Add(time.Hour)
	if !c.Usable() {
		t.Error("not usable long before the login ends")
	}
	c.Expires = time.Now()
	if c.Usable() {
		t.Error("usable when the login has ended")
	}
}

// send sends the bytes of an answer.
func send(c net.Conn, id int32, body []byte) {
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	_, _ = c.Write(append(binary.BigEndian.AppendUint32(frame, uint32(id)), body...))
}

// TestAnnounced: an answer that announces more elements than it has bytes for is refused, and
// nothing is allocated for them.
func TestAnnounced(t *testing.T) {
	brokers := []byte{0, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1} // throttle, count
	for name, answer := range map[string]func(f *fake, c net.Conn){
		"versions": func(f *fake, c net.Conn) {
			id, _ := f.Next(c)
			send(c, id, []byte{0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0})
		},
		"brokers": func(f *fake, c net.Conn) {
			f.greet(c)
			id, _ := f.Next(c)
			send(c, id, brokers)
		},
	} {
		f := newFake(t, func(f *fake, c net.Conn) {
			answer(f, c)
			untilClosed(c)
		})
		c, err := Dial(t.Context(), &f.opts, f.addr)
		if err == nil {
			_, err = c.RoundTrip(t.Context(), longTimeout, &metadata.Request{TopicNames: []string{}})
			c.Close()
		}
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "2147483647 elements") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestClaimedSize: a frame is read as its bytes come, and its memory is not kept.
func TestClaimedSize(t *testing.T) {
	f := newFake(t, func(f *fake, c net.Conn) {
		f.greet(c)
		id, _ := f.Next(c)
		large := make([]byte, 3*keptFrame)
		f.answer(c, 8, id, &metadata.Response{ClusterID: "c", Topics: []metadata.ResponseTopic{{Name: "t", Partitions: make([]metadata.ResponsePartition, len(large)/64)}}})
		id, _ = f.Next(c)
		_, _ = c.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, maxAnswer), uint32(id)))
	})
	c := f.dial()
	if _, err := c.RoundTrip(t.Context(), longTimeout, &metadata.Request{}); err != nil {
		t.Fatal(err)
	}
	if cap(c.frame) < keptFrame {
		t.Fatalf("the answer has %d bytes", cap(c.frame))
	}
	if _, err := c.RoundTrip(t.Context(), longTimeout, &metadata.Request{}); err == nil || cap(c.frame) > keptFrame/4 {
		t.Errorf("%d bytes are kept of a frame that never came: %v", cap(c.frame), err)
	}
}

// fake is a broker that a test scripts, for what a real one cannot be made to do. Each script has
// one connection, one after the other.
type fake struct {
	testing.TB
	addr   string
	opts   DialOptions
	offers []apiversions.ApiKeyResponse
	gone   chan struct{} // closed when the script has ended
}

func newFake(t testing.TB, scripts ...func(f *fake, c net.Conn)) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{TB: t, addr: l.Addr().String(), gone: make(chan struct{}), offers: []apiversions.ApiKeyResponse{
		{ApiKey: int16(protocol.Produce), MinVersion: 3, MaxVersion: 13},
		{ApiKey: int16(protocol.Metadata), MaxVersion: 13},
		{ApiKey: int16(protocol.InitProducerId), MaxVersion: 5},
		{ApiKey: int16(protocol.SaslHandshake), MaxVersion: 1},
		{ApiKey: int16(protocol.SaslAuthenticate), MaxVersion: 2},
	}}
	go func() {
		defer close(f.gone)
		for _, script := range scripts {
			c, err := l.Accept()
			if err != nil {
				return
			}
			script(f, c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-f.gone
	})
	return f
}

// dial connects to the fake, for the test.
func (f *fake) dial() *Conn {
	f.Helper()
	c, err := Dial(context.Background(), &f.opts, f.addr)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(c.Close) // before the fake's own, which waits for its script
	return c
}

// Next is the next request, nil when the connection is closed.
func (f *fake) Next(c net.Conn) (id int32, req protocol.Message) {
	_, id, _, req, err := protocol.ReadRequest(c)
	if err != nil {
		return 0, nil
	}
	return id, req
}

func (f *fake) answer(c net.Conn, version int16, id int32, res protocol.Message) {
	if err := protocol.WriteResponse(c, version, id, res); err != nil {
		f.Error(err)
	}
}

// greet answers the first request, which is for the versions.
func (f *fake) greet(c net.Conn) {
	id, req := f.Next(c)
	if _, ok := req.(*apiversions.Request); !ok {
		f.Errorf("the first request is a %T", req)
		return
	}
	f.answer(c, 0, id, &apiversions.Response{ApiKeys: f.offers})
}

// untilClosed waits until the client has closed the connection.
func untilClosed(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
