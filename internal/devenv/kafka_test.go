package devenv

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

func wantKafkaError(t *testing.T, err error, want kafkago.Error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

func text(s string) protocol.Bytes { return protocol.NewBytes([]byte(s)) }

func TestKafkaTopics(t *testing.T) {
	ctx := testContext(t)
	k := SharedKafka(t)
	to := client{brokers: k.Brokers()}

	t.Run("records come back as they were written", func(t *testing.T) {
		topic := k.Topic(t, 2)
		at := time.UnixMilli(1_700_000_000_123)
		must(t, to.produce(ctx, topic, 1, protocol.Record{Key: text("k"), Value: text("v"), Time: at, Headers: []protocol.Header{
			{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "", Value: []byte{}}, {Key: "null"},
		}}, protocol.Record{Time: at}, protocol.Record{Key: text(""), Value: text(""), Time: at}))
		must(t, to.produce(ctx, topic, 0, protocol.Record{Key: text("first"), Time: at}))
		records, err := k.Records(ctx, topic)
		must(t, err)
		if len(records) != 4 || records[0].Partition != 0 || string(records[0].Key) != "first" {
			t.Fatalf("records are %v", records)
		}
		for i, r := range records[1:] {
			if r.Partition != 1 || r.Offset != int64(i) || !r.Time.Equal(at) {
				t.Errorf("record %d is %d-%d at %v", i, r.Partition, r.Offset, r.Time)
			}
		}
		full, null, empty := records[1], records[2], records[3]
		if string(full.Key) != "k" || string(full.Value) != "v" || full.Header("a") != "1" || full.Header("none") != "" {
			t.Errorf("record is %v", full)
		}
		want := []KafkaHeader{{"a", []byte("1")}, {"a", []byte("2")}, {"", []byte{}}, {"null", nil}}
		if !slices.EqualFunc(full.Headers, want, func(a, b KafkaHeader) bool {
			return a.Name == b.Name && string(a.Value) == string(b.Value) && (a.Value == nil) == (b.Value == nil)
		}) {
			t.Errorf("headers are %#v", full.Headers)
		}
		if null.Key != nil || null.Value != nil || empty.Key == nil || empty.Value == nil || len(empty.Key)+len(empty.Value) > 0 {
			t.Errorf("null is %#v, empty %#v", null, empty)
		}
		ends, err := k.EndOffsets(ctx, topic)
		must(t, err)
		if !maps.Equal(ends, map[int]int64{0: 1, 1: 3}) {
			t.Errorf("ends are %v", ends)
		}
	})

	t.Run("a log longer than an answer is read to its end", func(t *testing.T) {
		topic := k.Topic(t, 1)
		value := make([]byte, 900<<10)
		_, err := rand.Read(value)
		must(t, err)
		for range 20 {
			must(t, to.produce(ctx, topic, 0, protocol.Record{Value: protocol.NewBytes(value)}))
		}
		records, err := k.Records(ctx, topic)
		must(t, err)
		if len(records) != 20 || records[19].Offset != 19 || string(records[19].Value) != string(value) {
			t.Fatalf("%d records", len(records))
		}
	})

	t.Run("topics change", func(t *testing.T) {
		name := k.Topic(t, 1)
		wantKafkaError(t, k.CreateTopic(ctx, name, 1, 1, nil), kafkago.TopicAlreadyExists)
		wantKafkaError(t, to.produce(ctx, name, 2, protocol.Record{Key: text("k")}), kafkago.UnknownTopicOrPartition)
		must(t, k.AddPartitions(ctx, name, 3))
		must(t, to.produce(ctx, name, 2, protocol.Record{Key: text("k")}))
		wantKafkaError(t, k.AddPartitions(ctx, name, 2), kafkago.InvalidPartitionNumber)

		must(t, k.SetTopicConfig(ctx, name, "max.message.bytes", "1000"))
		must(t, poll(ctx, time.Millisecond, func() (bool, error) {
			err := to.produce(ctx, name, 2, protocol.Record{Value: protocol.NewBytes(make([]byte, 1000))})
			if err != nil && !errors.Is(err, kafkago.MessageSizeTooLarge) {
				return false, err
			}
			return err != nil, nil
		}))
		wantKafkaError(t, k.SetTopicConfig(ctx, name, "max.message.bytes", "many"), kafkago.InvalidConfiguration)
		wantKafkaError(t, k.SetTopicConfig(ctx, "absent", "max.message.bytes", "1"), kafkago.UnknownTopicOrPartition)

		again := "again-" + name
		must(t, k.CreateTopic(ctx, again, 2, 1, map[string]string{"max.message.bytes": "100"}))
		wantKafkaError(t, to.produce(ctx, again, 0, protocol.Record{Value: protocol.NewBytes(make([]byte, 200))}), kafkago.MessageSizeTooLarge)
		must(t, k.DeleteTopic(ctx, again))
		wantKafkaError(t, k.DeleteTopic(ctx, again), kafkago.UnknownTopicOrPartition)
		wantKafkaError(t, to.produce(ctx, again, 0, protocol.Record{Key: text("k")}), kafkago.UnknownTopicOrPartition)
		if _, err := k.Records(ctx, again); !errors.Is(err, kafkago.UnknownTopicOrPartition) {
			t.Fatalf("error is %v", err)
		}
	})

	t.Run("a cluster that is not ours", func(t *testing.T) {
		given := &Kafka{bootstrap: k.Brokers()}
		topic := given.Topic(t, 1)
		if leader, err := given.Leader(ctx, topic, 0); leader < 1 || err != nil {
			t.Fatalf("leader is %d, %v", leader, err)
		}
		for _, err := range []error{given.KillNode(1), given.StopNode(ctx, 1), given.StartNode(ctx, 1), given.FreezeNode(1)} {
			if !errors.Is(err, errNotOurs) {
				t.Errorf("error is %v", err)
			}
		}
	})
}

// TestKafkaListeners has one broker with everything.
func TestKafkaListeners(t *testing.T) {
	ctx := testContext(t)
	k, err := StartKafka(ctx, KafkaOptions{
		Authorizer: true, Proxied: 2, Secure: true, Users: map[string]string{"relay": `it's a "secret"`, "other": "o"},
		Settings: map[string]string{"message.max.bytes": "5000"},
	})
	must(t, err)
	defer func() { must(t, k.Close()) }()
	const topic = "events"
	must(t, k.CreateTopic(ctx, topic, 1, 1, nil))
	record := protocol.Record{Key: text("k")}
	direct := client{brokers: k.Brokers()}

	t.Run("settings", func(t *testing.T) {
		wantKafkaError(t, direct.produce(ctx, topic, 0, protocol.Record{Value: protocol.NewBytes(make([]byte, 5000))}), kafkago.MessageSizeTooLarge)
	})

	t.Run("proxied", func(t *testing.T) {
		way := k.Way(1)
		proxied := client{brokers: way.Brokers()}
		must(t, proxied.produce(ctx, topic, 0, record))
		before := len(recordsIn(t, k, topic))
		way.Proxy(1).Hold(Down)
		short, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- proxied.produce(short, topic, 0, record) }()
		must(t, way.Proxy(1).WaitHeld(ctx, Down, 1))
		must(t, direct.produce(ctx, topic, 0, record))
		cancel()
		if err := <-ended; err == nil {
			t.Error("a request was answered through a proxy that holds")
		}
		way.Proxy(1).Release(Down)
		way.Proxy(1).Cut()
		if err := proxied.produce(ctx, topic, 0, record); err == nil {
			t.Error("a request went through a proxy that is cut")
		}
		must(t, way.Proxy(1).Mend())
		must(t, proxied.produce(ctx, topic, 0, record))
		if n := len(recordsIn(t, k, topic)); n != before+2 {
			t.Errorf("%d records more, want 2", n-before)
		}
	})

	t.Run("login", func(t *testing.T) {
		login := func(want error, mechanisms ...sasl.Mechanism) {
			t.Helper()
			for _, m := range mechanisms {
				for _, c := range []client{
					{brokers: k.SASLBrokers(), login: m},
					{brokers: k.SASLTLSBrokers(), login: m, tls: &tls.Config{RootCAs: k.Certs().Pool(), ServerName: "localhost"}},
				} {
					if err := c.produce(ctx, topic, 0, record); !errors.Is(err, want) {
						t.Errorf("%s at %v: error is %v, want %v", m.Name(), c.brokers, err, want)
					}
				}
			}
		}
		login(nil, mechanisms(t, "relay", `it's a "secret"`)...)
		login(nil, mechanisms(t, "other", "o")...)
		login(kafkago.SASLAuthenticationFailed, mechanisms(t, "relay", "wrong")...)
		must(t, k.SetPassword(ctx, "relay", "changed"))
		login(nil, mechanisms(t, "relay", "changed")[scramOnly:]...)
		login(nil, mechanisms(t, "other", "o")...)
		login(kafkago.SASLAuthenticationFailed, mechanisms(t, "relay", `it's a "secret"`)[scramOnly:]...)
		if err := (client{brokers: k.SASLBrokers()}).produce(ctx, topic, 0, record); err == nil {
			t.Error("a request without a login was answered")
		}
	})

	t.Run("TLS", func(t *testing.T) {
		certs := k.Certs()
		use := func(brokers []string, own CertificateFiles) error {
			config := &tls.Config{RootCAs: certs.Pool()}
			if own.Cert != "" {
				pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
				must(t, err)
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
			}
			config.ServerName = "127.0.0.1"
			return client{brokers: brokers, tls: config}.produce(ctx, topic, 0, record)
		}
		must(t, use(k.TLSBrokers(), CertificateFiles{}))
		must(t, use(k.MTLSBrokers(), certs.Client))
		another, err := certs.IssueClient("another", time.Now().Add(time.Hour))
		must(t, err)
		must(t, use(k.MTLSBrokers(), another))
		for name, own := range map[string]CertificateFiles{"none": {}, "expired": certs.ExpiredClient, "stranger": certs.Stranger} {
			if err := use(k.MTLSBrokers(), own); err == nil || !strings.Contains(err.Error(), "tls: ") {
				t.Errorf("certificate %s: error is %v", name, err)
			}
		}
		must(t, k.Deny(ctx, topic, "User:CN=another"))
		wantKafkaError(t, use(k.MTLSBrokers(), another), kafkago.TopicAuthorizationFailed)
		must(t, use(k.MTLSBrokers(), certs.Client))
		must(t, k.Allow(ctx, topic, "User:CN=another"))
		must(t, use(k.MTLSBrokers(), another))
	})

	t.Run("a denial is of one topic and one principal", func(t *testing.T) {
		must(t, k.CreateTopic(ctx, "open", 1, 1, nil))
		must(t, k.Deny(ctx, topic, "User:ANONYMOUS"))
		wantKafkaError(t, direct.produce(ctx, topic, 0, record), kafkago.TopicAuthorizationFailed)
		must(t, direct.produce(ctx, "open", 0, record))
		must(t, client{brokers: k.SASLBrokers(), login: plain.Mechanism{Username: "other", Password: "o"}}.produce(ctx, topic, 0, record))
		recordsIn(t, k, topic) // reading is allowed
		must(t, k.Allow(ctx, topic, "User:ANONYMOUS"))
		must(t, direct.produce(ctx, topic, 0, record))
	})

	t.Run("no producer id", func(t *testing.T) {
		must(t, k.DenyIdempotence(ctx, "User:ANONYMOUS"))
		wantKafkaError(t, initProducerID(ctx, k), kafkago.ClusterAuthorizationFailed)
		must(t, k.AllowIdempotence(ctx, "User:ANONYMOUS"))
		must(t, poll(ctx, 10*time.Millisecond, func() (bool, error) {
			err := initProducerID(ctx, k)
			if errors.Is(err, kafkago.GroupLoadInProgress) {
				return false, nil // the first block of ids is being fetched
			}
			return err == nil, err
		}))
	})

	t.Run("stop and kill keep the records, on the same ports", func(t *testing.T) {
		brokers, before := k.Brokers(), recordsIn(t, k, topic)
		must(t, k.StopNode(ctx, 1))
		if k.Pid(1) != 0 {
			t.Error("a stopped node has a pid")
		}
		if err := direct.produce(ctx, topic, 0, record); err == nil {
			t.Error("a stopped broker has answered")
		}
		must(t, k.StartNode(ctx, 1))
		must(t, direct.produce(ctx, topic, 0, record))
		must(t, k.KillNode(1))
		must(t, k.StartNode(ctx, 1))
		must(t, client{brokers: k.Way(0).Brokers()}.produce(ctx, topic, 0, record))
		if n := len(recordsIn(t, k, topic)); n != len(before)+2 || !slices.Equal(k.Brokers(), brokers) {
			t.Fatalf("%d records before, %d after", len(before), n)
		}
		if err := k.StartNode(ctx, 1); err == nil || k.Pid(1) == 0 || !strings.Contains(k.Log(1), "Kafka Server started") {
			t.Errorf("a second start of the same: %v", err)
		}
		changed := plain.Mechanism{Username: "relay", Password: "changed"}
		must(t, client{brokers: k.SASLBrokers(), login: changed}.produce(ctx, topic, 0, record))
	})
}

func recordsIn(t *testing.T, k *Kafka, topic string) []KafkaRecord {
	t.Helper()
	records, err := k.Records(testContext(t), topic)
	must(t, err)
	return records
}

// scramOnly cuts PLAIN off the mechanisms.
const scramOnly = 1

func mechanisms(t *testing.T, name, password string) []sasl.Mechanism {
	t.Helper()
	sha256, err := scram.Mechanism(scram.SHA256, name, password)
	must(t, err)
	sha512, err := scram.Mechanism(scram.SHA512, name, password)
	must(t, err)
	return []sasl.Mechanism{plain.Mechanism{Username: name, Password: password}, sha256, sha512}
}
