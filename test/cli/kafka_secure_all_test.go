//go:build testall

package cli

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

// securedKafka has logins, certificates and rights. Nobody may do what no ACL allows.
type securedKafka struct {
	*kafkaserver.Kafka
	certs *testcerts.Certificates
}

func TestSecureKafka(t *testing.T) {
	t.Parallel()
	kafka, err := kafkaserver.Start(await.Context(t), kafkaserver.Options{
		Secure: true, Users: map[string]string{"relay": "mqsecret"}, Authorizer: true,
		// The tests' own connections have no login; the relay's have.
		Settings: map[string]string{"allow.everyone.if.no.acl.found": "false", "super.users": "User:node;User:ANONYMOUS;User:CN=auditor"},
	})
	must(t, err)
	t.Cleanup(func() { must(t, kafka.Close()) })
	s := &securedKafka{kafka, kafka.Certs()}
	for _, part := range securedParts {
		t.Run(part.name, func(t *testing.T) { part.run(s, t) })
	}
}

// securedPart is one of TestSecureKafka.
type securedPart struct {
	name string
	run  func(*securedKafka, *testing.T)
}

// securedParts are played in this order; kafka_secure_nightly_test.go has more.
var securedParts = []securedPart{{"rights of a user", (*securedKafka).rightsOfUser}}

// password is keys of the section kafka.
func (s *securedKafka) password(password string) string {
	return fmt.Sprintf("tls: {enabled: true, ca: %s}, sasl: {mechanism: scram-sha-512, username: relay, password: '%s'}", s.certs.CA, password)
}

func (s *securedKafka) rightsOfUser(t *testing.T) {
	kafkaLogin{s.SASLTLSBrokers()[0], s.password("mqsecret"), "User:relay", "User:relay"}.rights(t, s.Kafka, "user")
}

// kafkaLogin is how a relay logs in, and what the ACLs and the messages call it.
type kafkaLogin struct{ brokers, login, principal, said string }

// The rights that docs/kafka.md#rights asks for are enough, for a user and for the name of a
// certificate: Write, Describe and Read on the topics of a prefix. A topic that is not granted is
// paused, by name, and the others flow.
func (c kafkaLogin) rights(t *testing.T, kafka *kafkaserver.Kafka, name string) {
	t.Helper()
	k := &topical{rig: newRig(t), kafka: kafka}
	publishTo := func(topic string) {
		k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: '%s', %s}", c.brokers, topic, c.login)
	}
	insert := func(aggregate string) string {
		return ask[string](k.rig, `INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), $1, '1', 'created') RETURNING id::text`, aggregate)
	}
	prefix := name + ".event."
	inside, outside := prefix+"order", name+".ledger"
	for _, topic := range []string{inside, outside} {
		must(t, kafka.CreateTopic(await.Context(t), topic, 3, 1, nil))
	}
	publishTo(prefix + "{aggregate}")
	k.ok("init")
	k.finds("producer id", "fail", []string{"Authorization Failed"}, []string{" --command-config admin.properties --add --allow-principal " + c.said + " --operation Write --operation Describe --operation Read --topic " + prefix + " --resource-pattern-type prefixed"})

	must(t, kafka.Grant(await.Context(t), prefix, c.principal))
	for _, topic := range []string{prefix + "{aggregate}", inside} {
		publishTo(topic)
		for _, f := range checked(t, k.ok("check", "--json")) {
			if f.Level != "ok" && !ofSuperuser(f) && f.Name != "allowed topics" || f.Name == fmt.Sprintf("topic %q", topic) && !hasAll(f.Detail, []string{"3 partitions", "largest message", "not visible", "DescribeConfigs"}) {
				t.Errorf("check of %s with the documented rights: %+v", topic, f)
			}
		}
	}
	publishTo(prefix + "x{aggregate}")
	k.finds(fmt.Sprintf("topic %q", prefix+"x{aggregate}"), "warn", []string{"that this user may describe"}, []string{"--create --topic " + prefix + "xAGGREGATE", "grant the right"})
	publishTo(outside)
	k.finds(fmt.Sprintf("topic %q", outside), "fail", []string{"Topic Authorization Failed"}, []string{"kafka-acls.sh", "--topic " + outside})

	publishTo("{aggregate}")
	relay := k.start()
	id := insert(outside)
	if p := deferred(t, relay, 1).Broker.Paused[0]; p.Destination != fmt.Sprintf("topic %q", outside) || p.Reason != "not_permitted" {
		t.Errorf("paused is %+v", p)
	}
	for n := range 3 {
		insert(inside)
		k.records(inside, n+1)
	}
	must(t, kafka.Grant(await.Context(t), outside, c.principal))
	if r := k.records(outside, 1)[0]; r.Header("id") != id {
		t.Errorf("what arrived is %+v", r)
	}
	eventually(t, func() string { return drained(t, relay) })
	ended(t, relay)
	hidden(t, relay.Log())
}
