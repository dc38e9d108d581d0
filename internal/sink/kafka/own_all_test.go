//go:build testall

// Tests that change rights, need another setting or kill the broker, on one of this process.

package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/issuer"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

const anybody = "User:ANONYMOUS"

// TestOwnBroker is on a cluster of one broker that obeys ACLs and has all kinds of listeners. Tests
// put back what they change. Sessions of tokens end with the token, or after 2 s.
func TestOwnBroker(t *testing.T) {
	t.Parallel()
	i, err := issuer.Start()
	must(t, err)
	t.Cleanup(func() { must(t, i.Close()) })
	k, err := kafkaserver.Start(await.Context(t), kafkaserver.Options{
		Authorizer: true, Proxied: 1, Secure: true, Users: map[string]string{"relay": "relay secret"}, Issuer: i,
		Settings: map[string]string{
			"connections.max.reauth.ms": "3600000", "listener.name.token.oauthbearer.connections.max.reauth.ms": "2000",
			"socket.request.max.bytes": "8388608",
		},
	})
	must(t, err)
	t.Cleanup(func() { must(t, k.Close()) })
	of := func(test func(*testing.T, *kafkaserver.Kafka, *issuer.Issuer)) func(*testing.T, *kafkaserver.Kafka) {
		return func(t *testing.T, k *kafkaserver.Kafka) { test(t, k, i) }
	}
	for name, test := range map[string]func(*testing.T, *kafkaserver.Kafka){
		"conformance":               testConformanceForbidden,
		"forbidden topic":           testForbiddenTopic,
		"no right to a producer id": testNoProducerID,
		"too large for a request":   testTooLargeForARequest,
		"internal topic":            testInternalTopic,
		"check of a template":       testCheckOfTemplate,
		"listeners":                 testListeners,
		"killed":                    testBrokerKilled,
		"taken back to a snapshot":  testTakenBackToASnapshot,
		"tokens are renewed":        of(testTokensRenewed),
		"tokens are late":           of(testTokensLate),
		"tokens are refused":        of(testTokensRefused),
	} {
		t.Run(name, func(t *testing.T) { test(t, k) })
	}
}

// A topic that may not be written to.
func testConformanceForbidden(t *testing.T, k *kafkaserver.Kafka) {
	forbidden := func(kind sinktest.Kind) bool { return kind == sinktest.DestinationForbidden }
	sinktest.Run(t, forbidden, func(t *testing.T) sinktest.Broker {
		return openConformance(t, k, k.Way(0), sinktest.DestinationForbidden)
	})
}

func testForbiddenTopic(t *testing.T, k *kafkaserver.Kafka) {
	topic, forbidden := topicWith(t, k, 1, 1, nil), topicWith(t, k, 1, 1, nil)
	r := start(t, Config{Brokers: k.Brokers()})
	wantConfirmed(t, r.send(newEvent(forbidden, "k")))
	must(t, k.Deny(await.Context(t), forbidden, anybody))
	good, held := events(100, topic), newEvent(forbidden, "k")
	got := amongMany(t, r, good, held)
	wantRejected(t, got, sink.Destination, sink.NotPermitted)
	if got.Fault.Destination != fmt.Sprintf("topic %q", forbidden) || !got.Fault.Whole {
		t.Errorf("fault %+v", got.Fault)
	}
	wantRejected(t, r.send(held)[0], sink.Destination, sink.NotPermitted)
	must(t, k.Allow(await.Context(t), forbidden, anybody))
	wantConfirmed(t, r.send(held))
	wantStored(t, k, topic, good...)
}

func testNoProducerID(t *testing.T, k *kafkaserver.Kafka) {
	topic := topicWith(t, k, 1, 1, nil)
	r := start(t, Config{Brokers: k.Brokers()})
	must(t, k.DenyIdempotence(await.Context(t), anybody))
	ev := newEvent(topic, "k")
	got := r.send(ev)
	must(t, k.AllowIdempotence(await.Context(t), anybody))
	wantRejected(t, got[0], sink.Destination, sink.NotPermitted)
	await.Until(t, "the right is given back", func() bool { return r.send(ev)[0].State == sink.Confirmed })
	wantStored(t, k, topic, ev)
}

// Over what is larger than socket.request.max.bytes a broker ends the connection and says nothing.
func testTooLargeForARequest(t *testing.T, k *kafkaserver.Kafka) {
	topic := topicWith(t, k, 1, 1, map[string]string{"max.message.bytes": "200000000"})
	r := start(t, Config{Brokers: k.Brokers()})
	large := newEvent(topic, "large")
	large.Payload = make([]byte, 9<<20)
	good := events(100, topic)
	got := amongMany(t, r, good, large)
	wantRejected(t, got, sink.Permanent, sink.TooLarge)
	if !strings.Contains(got.Fault.Text, "socket.request.max.bytes") {
		t.Errorf("text %q", got.Fault.Text)
	}
	wantStored(t, k, topic, good...)
}

// Kafka's own topics take nothing from producers (17): the topic is at fault.
func testInternalTopic(t *testing.T, k *kafkaserver.Kafka) {
	const internal = "__consumer_offsets"
	must(t, k.CreateTopic(await.Context(t), internal, 1, 1, nil))
	topic := topicWith(t, k, 1, 1, nil)
	r := start(t, Config{Brokers: k.Brokers()})
	good := events(100, topic)
	got := amongMany(t, r, good, newEvent(internal, "k"))
	wantRejected(t, got, sink.Destination, sink.Invalid)
	if !got.Fault.Whole || got.Fault.Destination != topicTitle(internal) {
		t.Errorf("fault %+v", got.Fault)
	}
	wantStored(t, k, topic, good...)
}

// Of a template check examines the topics that its events may name: the first of them, and none of
// anybody else's.
func testCheckOfTemplate(t *testing.T, kafka *kafkaserver.Kafka) {
	ctx := await.Context(t)
	cfg := Config{Brokers: kafka.Brokers(), RecordConfig: RecordConfig{PlainConfig: sink.PlainConfig{Columns: []string{"region"}}}}
	// find waits for so many findings, of which the last one says something: a broker may answer
	// before it knows of a change that the controller has confirmed.
	find := func(template string, n int, last string) (found []sink.Finding) {
		t.Helper()
		await.Until(t, "the findings about "+template, func() bool {
			found = slices.DeleteFunc(examined(t, cfg, template), func(f sink.Finding) bool { return !strings.HasPrefix(f.Name, "topic ") })
			return len(found) == n && strings.Contains(found[n-1].Detail, last)
		}, func() any { return found })
		return found
	}
	for _, template := range []string{"outbox.{aggregate}.v1", "{column:region}", "{type}{id}"} {
		found := find(template, 1, "no such topic")
		if found[0].Name != topicTitle(template) {
			t.Fatalf("found %+v", found)
		}
		want(t, found[0], false, true, "no such topic", "--create --topic "+map[string]string{
			"outbox.{aggregate}.v1": "outbox.AGGREGATE.v1 ", "{column:region}": "REGION ", "{type}{id}": "TYPEID ",
		}[template])
	}
	for _, name := range []string{"outbox.b.v1", "outboxxb.v1", "an.outbox.b.v1", "outbox.b.v10"} {
		create(t, kafka, name, 2, 1, nil)
	}
	found := find("outbox.{aggregate}.v1", 1, "2 partitions, 1 replicas, ")
	if found[0].Name != topicTitle("outbox.b.v1") {
		t.Fatalf("found %+v", found)
	}
	want(t, found[0], true, false, "2 partitions, 1 replicas, ", "")
	find("{aggregate}", 4, "2 partitions") // and nothing of Kafka's own

	// The one topic cannot be written to: nothing can. With another one it is a warning.
	must(t, kafka.Deny(ctx, "outbox.b.v1", "User:ANONYMOUS"))
	want(t, find("outbox.{aggregate}.v1", 1, "may not write")[0], false, false, "may not write", "--topic outbox. --resource-pattern-type prefixed")
	create(t, kafka, "outbox.a.v1", 1, 1, nil)
	found = find("outbox.{aggregate}.v1", 2, "may not write")
	want(t, found[0], true, false, "1 partitions", "")
	want(t, found[1], false, true, "may not write", "prefixed")

	// Settings that cannot hold: no partition has two replicas. And more topics than are checked.
	must(t, kafka.SetTopicConfig(ctx, "outbox.a.v1", "min.insync.replicas", "2"))
	found = find("outbox.a{key}", 1, "in sync")
	want(t, found[0], false, false, "never have that many in sync", "--add-config min.insync.replicas=1")
	for i := range maxTopics {
		create(t, kafka, fmt.Sprintf("many.%d", i), 1, 1, nil)
	}
	find("many.{id}", maxTopics, "1 partitions")
	create(t, kafka, "many.more", 1, 1, nil)
	found = find("many.{id}", maxTopics+1, "1 more")
	want(t, found[maxTopics], true, false, "1 more", "")

	// Names that are made from keys are not shown.
	if found = find("many.{key}", 2, ""); found[0].Name != topicTitle("many.{key}") {
		t.Fatalf("found %+v", found)
	}
	want(t, found[0], true, false, "1 partitions", "")
}

// tlsOf trusts the CA of the cluster and has a client's certificate, perhaps.
func tlsOf(certs *testcerts.Certificates, client *testcerts.CertificateFiles) func() (*tls.Config, error) {
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

func saslOf(mechanism, password string) func(context.Context) (*kafkaclient.SASL, error) {
	return func(context.Context) (*kafkaclient.SASL, error) {
		return &kafkaclient.SASL{Mechanism: mechanism, Username: "relay", Password: password}, nil
	}
}

// Every kind of listener lets in who may, and refuses who may not, with the reason.
func testListeners(t *testing.T, k *kafkaserver.Kafka) {
	ctx := await.Context(t)
	certs := k.Certs()
	other, err := testcerts.NewCertificates()
	if err != nil {
		t.Fatal(err)
	}
	secure := tlsOf(certs, nil)
	type attempt struct {
		addr    string
		tls     func() (*tls.Config, error)
		sasl    func(context.Context) (*kafkaclient.SASL, error)
		refused bool   // the login
		want    string // of the error; "": none
	}
	attempts := map[string]attempt{
		"plaintext":              {k.Brokers()[0], nil, nil, false, ""},
		"TLS":                    {k.TLSBrokers()[0], secure, nil, false, ""},
		"TLS, another CA":        {k.TLSBrokers()[0], tlsOf(other, nil), nil, false, "unknown authority"},
		"TLS, plaintext":         {k.TLSBrokers()[0], nil, nil, false, "TLS"},
		"plaintext, TLS":         {k.Brokers()[0], secure, nil, false, "the port takes no TLS"},
		"mTLS":                   {k.MTLSBrokers()[0], tlsOf(certs, &certs.Client), nil, false, ""},
		"mTLS, no certificate":   {k.MTLSBrokers()[0], secure, nil, false, "tls: "},
		"mTLS, a stranger's":     {k.MTLSBrokers()[0], tlsOf(certs, &certs.Stranger), nil, false, "tls: "},
		"mTLS, expired":          {k.MTLSBrokers()[0], tlsOf(certs, &certs.ExpiredClient), nil, false, "tls: "},
		"SASL, no login":         {k.SASLBrokers()[0], nil, nil, false, "the listener wants a login, it has "},
		"plaintext, login":       {k.Brokers()[0], nil, saslOf("plain", "relay secret"), false, "no SASL login"},
		"unreadable credentials": {k.SASLBrokers()[0], nil, func(context.Context) (*kafkaclient.SASL, error) { return nil, errors.New("no file") }, false, "no file"},
	}
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		right, wrong := saslOf(mechanism, "relay secret"), saslOf(mechanism, "wrong secret")
		attempts[mechanism] = attempt{k.SASLBrokers()[0], nil, right, false, ""}
		attempts[mechanism+" over TLS"] = attempt{k.SASLTLSBrokers()[0], secure, right, false, ""}
		attempts[mechanism+", wrong password"] = attempt{k.SASLBrokers()[0], nil, wrong, true, "(58)"}
		attempts[mechanism+" over TLS, wrong password"] = attempt{k.SASLTLSBrokers()[0], secure, wrong, true, "(58)"}
	}
	unfit := []string{"TLS, plaintext", "plaintext, TLS", "SASL, no login", "plaintext, login"}
	for name, a := range attempts {
		t.Run(name, func(t *testing.T) {
			c, err := kafkaclient.Dial(ctx, &kafkaclient.DialOptions{TLS: a.tls, SASL: a.sasl}, a.addr)
			if err == nil {
				defer c.Close()
				_, err = kafkaclient.RoundTripAs[*metadata.Response](ctx, c, within, &metadata.Request{TopicNames: []string{}})
			}
			if got, want := errors.As(err, new(*kafkaclient.UnfitError)), slices.Contains(unfit, name); got != want {
				t.Errorf("unfit %v, want %v: %v", got, want, err)
			}
			if err != nil {
				if a.want == "" || errors.Is(err, kafkaclient.ErrLogin) != a.refused || !strings.Contains(err.Error(), a.want) || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, want %q, refused %v", err, a.want, a.refused)
				}
				return
			}
			if a.want != "" {
				t.Fatalf("connected, want %q", a.want)
			}
			if (a.sasl != nil) == c.Expires.IsZero() {
				t.Errorf("the login ends at %v", c.Expires)
			}
			ended := make(chan struct{}, 1)
			for range 10 {
				c.Watch(ended)()
				if _, err := kafkaclient.RoundTripAs[*metadata.Response](ctx, c, within, &metadata.Request{TopicNames: []string{}}); err != nil {
					t.Fatalf("after a watch: %v", err)
				}
			}
			if len(ended) > 0 {
				t.Error("an open connection is reported as ended")
			}
		})
	}
}

// The broker is killed under load and starts again.
func testBrokerKilled(t *testing.T, k *kafkaserver.Kafka) {
	topic := topicWith(t, k, 6, 1, nil)
	r := start(t, Config{Brokers: k.Brokers()})
	f := flow(t, r, topic, 50)
	f.wait(1000)
	must(t, k.KillNode(1))
	await.Until(t, "the broker is missed", func() bool { up, why := r.Up(); return !up && why != "" })
	must(t, k.StartNode(await.Context(t), 1))
	f.wait(1000)
	wantStored(t, k, topic, f.end()...)
	if len(f.rejected) > 0 {
		t.Errorf("rejected: %v", f.rejected)
	}
}
