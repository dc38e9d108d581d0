package conn

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"

	"github.com/cdc-relay/cdc-relay/internal/kafkaguard"
)

// send sends the bytes of an answer.
func send(c net.Conn, id int32, body []byte) {
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	_, _ = c.Write(append(binary.BigEndian.AppendUint32(frame, uint32(id)), body...))
}

// TestClaims: an answer that announces more elements than it has bytes for is refused, and nothing
// is allocated for them.
func TestClaims(t *testing.T) {
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
		if !errors.Is(err, kafkaguard.ErrAnswer) || !strings.Contains(err.Error(), "2147483647 elements") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestClaimedSize: a frame is read as its bytes come, and its memory is not kept.
func TestClaimedSize(t *testing.T) {
	f := newFake(t, func(f *fake, c net.Conn) {
		f.greet(c)
		id, _ := f.Next(c)
		large := make([]byte, 3*spare)
		f.answer(c, 8, id, &metadata.Response{ClusterID: "c", Topics: []metadata.ResponseTopic{{Name: "t", Partitions: make([]metadata.ResponsePartition, len(large)/64)}}})
		id, _ = f.Next(c)
		_, _ = c.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, maxAnswer), uint32(id)))
	})
	c := f.dial()
	if _, err := c.RoundTrip(t.Context(), longTimeout, &metadata.Request{}); err != nil {
		t.Fatal(err)
	}
	if cap(c.frame) < spare {
		t.Fatalf("the answer has %d bytes", cap(c.frame))
	}
	if _, err := c.RoundTrip(t.Context(), longTimeout, &metadata.Request{}); err == nil || cap(c.frame) > spare/4 {
		t.Errorf("%d bytes are kept of a frame that never came: %v", cap(c.frame), err)
	}
}

// TestRounds: a broker that wants 2^31-1 rounds of SCRAM is refused, and no round is computed.
func TestRounds(t *testing.T) {
	err := loginOf(t, SASL{Mechanism: "scram-sha-512", Username: "relay", Password: "top-secret"}, func(f *fake, c net.Conn) {
		id, _ := f.Next(c)
		f.answer(c, 1, id, &saslhandshake.Response{})
		id, req := f.Next(c)
		_, nonce, _ := strings.Cut(string(req.(*saslauthenticate.Request).AuthBytes), "r=")
		f.answer(c, 1, id, &saslauthenticate.Response{AuthBytes: []byte("r=" + nonce + "x,s=c2FsdA==,i=2147483647")})
	})
	if !errors.Is(err, ErrLogin) || !strings.Contains(err.Error(), "2147483647 rounds of SCRAM") {
		t.Errorf("got %v", err)
	}
}
