//go:build testall

package cli

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// The rights that docs/kafka.md#rights asks for are enough, for a user and for the name of a
// certificate: Write and Describe on the topics of a prefix, where nobody may do what no ACL
// allows. A topic that is not granted is paused, by name, and the others flow.
func TestKafkaRights(t *testing.T) {
	t.Parallel()
	kafka, err := kafkaserver.Start(await.Context(t), kafkaserver.Options{
		Secure: true, Users: map[string]string{"relay": "mqsecret"}, Authorizer: true,
		// The tests' own connections have no login; the relay's have.
		Settings: map[string]string{"allow.everyone.if.no.acl.found": "false", "super.users": "User:node;User:ANONYMOUS"},
	})
	must(t, err)
	t.Cleanup(func() { must(t, kafka.Close()) })
	certs := kafka.Certs()
	for name, c := range map[string]struct{ brokers, login, principal, said string }{
		"user": {
			kafka.SASLTLSBrokers()[0], fmt.Sprintf("tls: {enabled: true, ca: %s}, sasl: {mechanism: scram-sha-512, username: relay, password: mqsecret}", certs.CA),
			"User:relay", "User:relay",
		},
		"certificate": {
			kafka.MTLSBrokers()[0], fmt.Sprintf("tls: {enabled: true, ca: %s, cert: %s, key: %s}", certs.CA, certs.Client.Cert, certs.Client.Key),
			"User:CN=relay", "User:NAME",
		},
	} {
		t.Run(name, func(t *testing.T) {
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
			k.finds("producer id", "fail", []string{"Authorization Failed"}, []string{" --command-config admin.properties --add --allow-principal " + c.said + " --operation Write --operation Describe --topic " + prefix + " --resource-pattern-type prefixed"})

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
			if code := relay.Stop(t); code != 0 {
				t.Errorf("exit %d", code)
			}
			hidden(t, relay.Log())
		})
	}
}
