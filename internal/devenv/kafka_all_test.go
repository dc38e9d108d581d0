//go:build testall

package devenv

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// TestKafkaListeners has one broker with everything.
func TestKafkaListeners(t *testing.T) {
	ctx := await.Context(t)
	k, err := StartKafka(ctx, KafkaOptions{
		Authorizer: true, Proxied: 2, Secure: true, Users: map[string]string{"relay": `it's a "secret"`, "other": "o"},
		Settings: map[string]string{"message.max.bytes": "5000"},
	})
	await.Must(t, err)
	defer func() { await.Must(t, k.Close()) }()
	const topic = "events"
	await.Must(t, k.CreateTopic(ctx, topic, 1, 1, nil))
	record := protocol.Record{Key: text("k")}
	direct := client{brokers: k.Brokers()}

	t.Run("settings", func(t *testing.T) {
		wantKafkaError(t, direct.produce(ctx, topic, 0, protocol.Record{Value: protocol.NewBytes(make([]byte, 5000))}), kafkago.MessageSizeTooLarge)
	})

	t.Run("proxied", func(t *testing.T) {
		way := k.Way(1)
		proxied := client{brokers: way.Brokers()}
		await.Must(t, proxied.produce(ctx, topic, 0, record))
		before := len(recordsIn(t, k, topic))
		way.Proxy(1).Hold(Down)
		short, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- proxied.produce(short, topic, 0, record) }()
		await.Must(t, way.Proxy(1).WaitHeld(ctx, Down, 1))
		await.Must(t, direct.produce(ctx, topic, 0, record))
		cancel()
		if err := <-ended; err == nil {
			t.Error("a request was answered through a proxy that holds")
		}
		way.Proxy(1).Release(Down)
		way.Proxy(1).Cut()
		if err := proxied.produce(ctx, topic, 0, record); err == nil {
			t.Error("a request went through a proxy that is cut")
		}
		await.Must(t, way.Proxy(1).Mend())
		await.Must(t, proxied.produce(ctx, topic, 0, record))
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
		await.Must(t, k.SetPassword(ctx, "relay", "changed"))
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
				await.Must(t, err)
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
			}
			config.ServerName = "127.0.0.1"
			return client{brokers: brokers, tls: config}.produce(ctx, topic, 0, record)
		}
		await.Must(t, use(k.TLSBrokers(), CertificateFiles{}))
		await.Must(t, use(k.MTLSBrokers(), certs.Client))
		another, err := certs.IssueClient("another", time.Now().Add(time.Hour))
		await.Must(t, err)
		await.Must(t, use(k.MTLSBrokers(), another))
		for name, own := range map[string]CertificateFiles{"none": {}, "expired": certs.ExpiredClient, "stranger": certs.Stranger} {
			if err := use(k.MTLSBrokers(), own); err == nil || !strings.Contains(err.Error(), "tls: ") {
				t.Errorf("certificate %s: error is %v", name, err)
			}
		}
		await.Must(t, k.Deny(ctx, topic, "User:CN=another"))
		wantKafkaError(t, use(k.MTLSBrokers(), another), kafkago.TopicAuthorizationFailed)
		await.Must(t, use(k.MTLSBrokers(), certs.Client))
		await.Must(t, k.Allow(ctx, topic, "User:CN=another"))
		await.Must(t, use(k.MTLSBrokers(), another))
	})

	t.Run("a denial is of one topic and one principal", func(t *testing.T) {
		await.Must(t, k.CreateTopic(ctx, "open", 1, 1, nil))
		await.Must(t, k.Deny(ctx, topic, "User:ANONYMOUS"))
		wantKafkaError(t, direct.produce(ctx, topic, 0, record), kafkago.TopicAuthorizationFailed)
		await.Must(t, direct.produce(ctx, "open", 0, record))
		await.Must(t, client{brokers: k.SASLBrokers(), login: plain.Mechanism{Username: "other", Password: "o"}}.produce(ctx, topic, 0, record))
		recordsIn(t, k, topic) // reading is allowed
		await.Must(t, k.Allow(ctx, topic, "User:ANONYMOUS"))
		await.Must(t, direct.produce(ctx, topic, 0, record))
	})

	t.Run("no producer id", func(t *testing.T) {
		await.Must(t, k.DenyIdempotence(ctx, "User:ANONYMOUS"))
		wantKafkaError(t, initProducerID(ctx, k), kafkago.ClusterAuthorizationFailed)
		await.Must(t, k.AllowIdempotence(ctx, "User:ANONYMOUS"))
		await.Must(t, poll(ctx, 10*time.Millisecond, func() (bool, error) {
			err := initProducerID(ctx, k)
			if errors.Is(err, kafkago.GroupLoadInProgress) {
				return false, nil // the first block of ids is being fetched
			}
			return err == nil, err
		}))
	})

	t.Run("stop and kill keep the records, on the same ports", func(t *testing.T) {
		brokers, before := k.Brokers(), recordsIn(t, k, topic)
		await.Must(t, k.StopNode(ctx, 1))
		if k.Pid(1) != 0 {
			t.Error("a stopped node has a pid")
		}
		if err := direct.produce(ctx, topic, 0, record); err == nil {
			t.Error("a stopped broker has answered")
		}
		await.Must(t, k.StartNode(ctx, 1))
		await.Must(t, direct.produce(ctx, topic, 0, record))
		await.Must(t, k.KillNode(1))
		await.Must(t, k.StartNode(ctx, 1))
		await.Must(t, client{brokers: k.Way(0).Brokers()}.produce(ctx, topic, 0, record))
		if n := len(recordsIn(t, k, topic)); n != len(before)+2 || !slices.Equal(k.Brokers(), brokers) {
			t.Fatalf("%d records before, %d after", len(before), n)
		}
		if err := k.StartNode(ctx, 1); err == nil || k.Pid(1) == 0 || !strings.Contains(k.Log(1), "Kafka Server started") {
			t.Errorf("a second start of the same: %v", err)
		}
		changed := plain.Mechanism{Username: "relay", Password: "changed"}
		await.Must(t, client{brokers: k.SASLBrokers(), login: changed}.produce(ctx, topic, 0, record))
	})
}
