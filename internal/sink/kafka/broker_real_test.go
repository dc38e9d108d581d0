package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// dialReal connects to a broker, for the test.
func dialReal(t testing.TB, cfg Config, addr string) *conn {
	t.Helper()
	cfg.defaults()
	c, err := dial(t.Context(), &cfg, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// soon asks until the answer's code is not the one of a broker, or a topic, that has only just begun.
func soon(t testing.TB, passing kafkago.Error, ask func() kafkago.Error) {
	t.Helper()
	for deadline := time.Now().Add(within); ask() == passing; {
		if time.Now().After(deadline) {
			t.Fatalf("still %v", passing)
		}
	}
}

// producer is a producer id of the broker's.
func producer(t testing.TB, c *conn) (id int64, epoch int16) {
	t.Helper()
	soon(t, kafkago.GroupLoadInProgress, func() kafkago.Error {
		res, err := ask[*initproducerid.Response](t.Context(), c, within, &initproducerid.Request{ProducerID: -1, ProducerEpoch: -1})
		if err != nil {
			t.Fatal(err)
		}
		id, epoch = res.ProducerID, res.ProducerEpoch
		return kafkago.Error(res.ErrorCode)
	})
	return id, epoch
}

// request is for one batch.
func request(topic string, partition int32, sealed []byte) *rawproduce.Request {
	return &rawproduce.Request{Acks: -1, Timeout: 10_000, Topics: []rawproduce.RequestTopic{{
		Topic: topic, Partitions: []rawproduce.RequestPartition{{
			Partition: partition, RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(sealed)},
		}},
	}}}
}

// send produces a sealed batch and returns the broker's answer to it.
func send(t testing.TB, c *conn, topic string, partition int32, sealed []byte) (answer produce.ResponsePartition) {
	t.Helper()
	soon(t, kafkago.NotLeaderForPartition, func() kafkago.Error {
		res, err := ask[*produce.Response](t.Context(), c, within, request(topic, partition, sealed))
		if err != nil {
			t.Fatal(err)
		}
		answer = res.Topics[0].Partitions[0]
		return kafkago.Error(answer.ErrorCode)
	})
	return answer
}

// ordinary is an event with everything that an event may have.
func ordinary(i int) *outbox.Event {
	ev := someEvent(i, fmt.Sprint("key-", i%10))
	ev.Payload = bytes.Repeat([]byte(`{"order": 12345, "lines": [1, 2]}`), i%50)
	ev.Headers = []byte(`{"source": "web", "none": null, "n": 1}`)
	switch i % 7 {
	case 0:
		ev.Key, ev.Ordered = nil, false
	case 1:
		ev.Key, ev.Ordered = []byte{}, false
	case 2:
		ev.Payload = nil
	case 3:
		ev.Time = ev.Time.Add(-time.Hour)
	}
	return ev
}

// TestRecordsOfEveryCompression has Kafka's own Java read every record of every compression: a topic of another compression
// has the broker unpack each batch, check its records and pack it anew. What comes back is compared, byte by byte.
func TestRecordsOfEveryCompression(t *testing.T) {
	k := devenv.SharedKafka(t)
	c := dialReal(t, Config{}, k.Brokers()[0])
	for _, codec := range codecs {
		for _, stored := range []string{"producer", "uncompressed", "gzip"} {
			t.Run(codec.String()+" to "+stored, func(t *testing.T) {
				topic := k.Topic(t, 1)
				for name, value := range map[string]string{"compression.type": stored, "max.message.bytes": "8388608"} {
					if err := k.SetTopicConfig(t.Context(), topic, name, value); err != nil {
						t.Fatal(err)
					}
				}
				id, epoch := producer(t, c)
				m, b := newMessage(layoutOf(t, Config{})), newBatch(codec)
				var want []record
				const count = 6000 // 5 MB: more than one block of every codec
				for i := range count {
					if fault := m.build(ordinary(i)); fault != nil || !b.add(m) {
						t.Fatal(fault)
					}
					headers := built(t, newMessage(m.layout), ordinary(i)).headers
					want = append(want, record{key: m.key, value: m.value, time: m.time, headers: headers})
				}
				sealed, answer := b.seal(id, epoch, 0), produce.ResponsePartition{}
				soon(t, kafkago.MessageSizeTooLarge, func() kafkago.Error { // a broker obeys a new limit a moment after it knows it
					answer = send(t, c, topic, 0, sealed)
					return kafkago.Error(answer.ErrorCode)
				})
				if answer.ErrorCode != 0 || answer.BaseOffset != 0 {
					t.Fatalf("answer %+v", answer)
				}
				got, err := k.Records(t.Context(), topic)
				if err != nil {
					t.Fatal(err)
				}
				if len(got) != count {
					t.Fatalf("%d records, want %d", len(got), count)
				}
				for i, r := range got {
					w := want[i]
					if r.Time.UnixMilli() != w.time || !sameBytes(r.Key, w.key) || !sameBytes(r.Value, w.value) {
						t.Fatalf("record %d: %+v, want %+v", i, r, w)
					}
					var headers []protocol.Header
					for _, h := range r.Headers {
						headers = append(headers, protocol.Header{Key: h.Name, Value: h.Value})
					}
					wantHeaders(t, headers, w.headers...)
				}
			})
		}
	}
}

// TestSequences has what a broker does with the producer id, epoch and sequence of a batch.
func TestSequences(t *testing.T) {
	k := devenv.SharedKafka(t)
	c, topic := dialReal(t, Config{}, k.Brokers()[0]), k.Topic(t, 1)
	id, epoch := producer(t, c)
	batchOf := func(text string, count int) *batch {
		b := newBatch(compress.None)
		for range count {
			b.add(record{value: []byte(text), time: 1_700_000_000_000}.message())
		}
		return b
	}
	first := batchOf("first", 10)
	for i, step := range []struct {
		sealed []byte
		code   kafkago.Error
		end    int64 // records stored then
	}{
		{first.seal(id, epoch, 0), 0, 10},
		{first.seal(id, epoch, 0), 0, 10},                 // the same again: stored once
		{batchOf("other", 10).seal(id, epoch, 0), 0, 10},  // other records under used numbers: acked, and not stored
		{batchOf("second", 5).seal(id, epoch, 10), 0, 15}, // the next
		{batchOf("gap", 5).seal(id, epoch, 16), kafkago.OutOfOrderSequenceNumber, 15},
		{batchOf("third", 1).seal(id, epoch, 15), 0, 16},
	} {
		answer := send(t, c, topic, 0, step.sealed)
		ends, err := k.EndOffsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		if kafkago.Error(answer.ErrorCode) != step.code || ends[0] != step.end {
			t.Errorf("step %d: code %d, %d records, want %d, %d", i, answer.ErrorCode, ends[0], step.code, step.end)
		}
	}
}

// TestLimitsOfARecord has the reasons of the limits that a record is held to before it is sent: what is larger costs the
// connection, and no answer tells why; the largest that is sent is answered.
func TestLimitsOfARecord(t *testing.T) {
	k := devenv.SharedKafka(t)
	topic := k.Topic(t, 1)
	b := newBatch(compress.None)
	b.add(record{value: make([]byte, maxRecord), time: 1}.message())
	if answer := send(t, dialReal(t, Config{}, k.Brokers()[0]), topic, 0, b.seal(-1, -1, -1)); kafkago.Error(answer.ErrorCode) != kafkago.MessageSizeTooLarge {
		t.Errorf("got %+v", answer)
	}
	b.add(record{value: make([]byte, 64<<10), time: 1}.message())
	if _, err := dialReal(t, Config{}, k.Brokers()[0]).roundTrip(t.Context(), within, request(topic, 0, b.seal(-1, -1, -1))); err == nil {
		t.Error("a request above socket.request.max.bytes has an answer")
	}
}

// TestChecksum has a broker refuse what came broken.
func TestChecksum(t *testing.T) {
	k := devenv.SharedKafka(t)
	c, topic := dialReal(t, Config{}, k.Brokers()[0]), k.Topic(t, 1)
	b := newBatch(compress.None)
	b.add(record{value: []byte("text"), time: 1}.message())
	sealed := b.seal(-1, -1, -1)
	sealed[len(sealed)-2] ^= 1
	if answer := send(t, c, topic, 0, sealed); kafkago.Error(answer.ErrorCode) != kafkago.InvalidMessage {
		t.Errorf("got %+v", answer)
	}
}

// tlsOf trusts the CA of the cluster and has a client's certificate, perhaps.
func tlsOf(certs *devenv.Certificates, client *devenv.CertificateFiles) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		cfg := &tls.Config{RootCAs: certs.Pool()}
		if client == nil {
			return cfg, nil
		}
		pair, err := tls.LoadX509KeyPair(client.Cert, client.Key)
		cfg.Certificates = []tls.Certificate{pair}
		return cfg, err
	}
}

func saslOf(mechanism, password string) func() (*SASL, error) {
	return func() (*SASL, error) {
		return &SASL{Mechanism: mechanism, Username: "relay", Password: password}, nil
	}
}

// TestListeners has every kind of listener let in who may, and refuse who may not, by words that tell why.
func TestListeners(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	k, err := devenv.StartKafka(ctx, devenv.KafkaOptions{
		Secure: true, Users: map[string]string{"relay": "relay secret"},
		Settings: map[string]string{"connections.max.reauth.ms": "3600000"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	certs := k.Certs()
	other, err := devenv.NewCertificates()
	if err != nil {
		t.Fatal(err)
	}
	secure := tlsOf(certs, nil)
	type attempt struct {
		addr    string
		tls     func() (*tls.Config, error)
		sasl    func() (*SASL, error)
		refused bool   // the login
		want    string // of the error; "": none
	}
	attempts := map[string]attempt{
		"plaintext":              {k.Brokers()[0], nil, nil, false, ""},
		"TLS":                    {k.TLSBrokers()[0], secure, nil, false, ""},
		"TLS, another CA":        {k.TLSBrokers()[0], tlsOf(other, nil), nil, false, "unknown authority"},
		"TLS, plaintext":         {k.TLSBrokers()[0], nil, nil, false, "TLS"},
		"plaintext, TLS":         {k.Brokers()[0], secure, nil, false, "may take no TLS"},
		"mTLS":                   {k.MTLSBrokers()[0], tlsOf(certs, &certs.Client), nil, false, ""},
		"mTLS, no certificate":   {k.MTLSBrokers()[0], secure, nil, false, "tls: "},
		"mTLS, a stranger's":     {k.MTLSBrokers()[0], tlsOf(certs, &certs.Stranger), nil, false, "tls: "},
		"mTLS, expired":          {k.MTLSBrokers()[0], tlsOf(certs, &certs.ExpiredClient), nil, false, "tls: "},
		"SASL, no login":         {k.SASLBrokers()[0], nil, nil, false, "wants a login"},
		"plaintext, login":       {k.Brokers()[0], nil, saslOf("plain", "relay secret"), false, "no SASL login"},
		"unreadable credentials": {k.SASLBrokers()[0], nil, func() (*SASL, error) { return nil, errors.New("no file") }, false, "no file"},
	}
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		right, wrong := saslOf(mechanism, "relay secret"), saslOf(mechanism, "wrong secret")
		attempts[mechanism] = attempt{k.SASLBrokers()[0], nil, right, false, ""}
		attempts[mechanism+" over TLS"] = attempt{k.SASLTLSBrokers()[0], secure, right, false, ""}
		attempts[mechanism+", wrong password"] = attempt{k.SASLBrokers()[0], nil, wrong, true, "(58)"}
		attempts[mechanism+" over TLS, wrong password"] = attempt{k.SASLTLSBrokers()[0], secure, wrong, true, "(58)"}
	}
	for name, a := range attempts {
		t.Run(name, func(t *testing.T) {
			cfg := Config{TLS: a.tls, SASL: a.sasl}
			cfg.defaults()
			c, err := dial(ctx, &cfg, a.addr)
			if err == nil {
				defer c.close()
				_, err = ask[*metadata.Response](ctx, c, within, &metadata.Request{TopicNames: []string{}})
			}
			if err != nil {
				if a.want == "" || errors.Is(err, errLogin) != a.refused || !strings.Contains(err.Error(), a.want) || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, want %q, refused %v", err, a.want, a.refused)
				}
				return
			}
			if a.want != "" {
				t.Fatalf("connected, want %q", a.want)
			}
			if (a.sasl != nil) == c.expires.IsZero() {
				t.Errorf("the login ends at %v", c.expires)
			}
			ended := make(chan struct{}, 1)
			for range 10 {
				c.watch(ended)()
				if _, err := ask[*metadata.Response](ctx, c, within, &metadata.Request{TopicNames: []string{}}); err != nil {
					t.Fatalf("after a watch: %v", err)
				}
			}
			if len(ended) > 0 {
				t.Error("a connection that stands is said to have ended")
			}
		})
	}
}

// TestUnknownTopicIsAnAnswer has a refusal that is no fault of the connection.
func TestUnknownTopicIsAnAnswer(t *testing.T) {
	k := devenv.SharedKafka(t)
	c := dialReal(t, Config{}, k.Brokers()[0])
	b := newBatch(compress.None)
	b.add(record{value: []byte("text"), time: 1}.message())
	if answer := send(t, c, "nowhere", 0, b.seal(-1, -1, -1)); kafkago.Error(answer.ErrorCode) != kafkago.UnknownTopicOrPartition {
		t.Errorf("got %+v", answer)
	}
	if !c.usable() {
		t.Error("not usable after a refusal")
	}
}
