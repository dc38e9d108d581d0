//go:build testall

package kafka_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// The rights that docs/consuming.md names are those that a service needs.
func TestRights(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	k, err := kafkaserver.Start(r.ctx, kafkaserver.Options{
		Authorizer: true, Secure: true, Users: map[string]string{"mailer": "mailer secret"},
		Settings: map[string]string{"allow.everyone.if.no.acl.found": "false", "super.users": "User:node;User:ANONYMOUS"},
	})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, k.Close()) })
	r.broker, r.topic, r.service = k, k.Topic(t, 1), "mailer"
	r.kafka.Topics, r.inbox.Service = []string{r.topic}, "mailer"
	r.kafka.Brokers, r.kafka.SASL = k.SASLBrokers(), plain.Mechanism{Username: "mailer", Password: "mailer secret"}
	r.writer.Addr = kafkago.TCP(k.Brokers()...)
	r.inbox.Levels = []time.Duration{time.Second}
	failing := true
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if failing {
			return errors.New("not yet")
		}
		return effect(ctx, tx, m)
	}
	c := r.consumer()
	if err := c.Run(r.ctx); !errors.Is(err, kafkago.TopicAuthorizationFailed) {
		t.Fatalf("without rights: %v", err)
	}

	admin := &kafkago.Client{Addr: kafkago.TCP(k.Brokers()...), Transport: r.writer.Transport}
	grant := func(kind kafkago.ResourceType, name string, pattern kafkago.PatternType, operations ...kafkago.ACLOperationType) {
		t.Helper()
		var acls []kafkago.ACLEntry
		for _, o := range operations {
			acls = append(acls, kafkago.ACLEntry{
				ResourceType: kind, ResourceName: name, ResourcePatternType: pattern,
				Principal: "User:mailer", Host: "*", Operation: o, PermissionType: kafkago.ACLPermissionTypeAllow,
			})
		}
		answer, err := admin.CreateACLs(r.ctx, &kafkago.CreateACLsRequest{ACLs: acls})
		await.Must(t, err)
		await.Must(t, errors.Join(answer.Errors...))
	}
	grant(kafkago.ResourceTypeTopic, r.topic, kafkago.PatternTypeLiteral, kafkago.ACLOperationTypeRead, kafkago.ACLOperationTypeDescribeConfigs)
	grant(kafkago.ResourceTypeGroup, "mailer", kafkago.PatternTypeLiteral, kafkago.ACLOperationTypeRead)
	grant(kafkago.ResourceTypeTopic, "mailer.", kafkago.PatternTypePrefixed, kafkago.ACLOperationTypeRead, kafkago.ACLOperationTypeWrite,
		kafkago.ACLOperationTypeDelete, kafkago.ACLOperationTypeDescribeConfigs, kafkago.ACLOperationTypeCreate)

	r.publish(event("1", "a"))
	await.Until(t, "the rights to be known", func() bool { return c.Declare(r.ctx) == nil })
	stop := r.run(c)
	r.wantRecords("mailer.dlq", 1)
	stop()
	failing = false
	n, err := c.Replay(r.ctx, inbox.ReplayFilter{})
	if n != 1 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	defer r.run(c)()
	r.wantEffects("1")
	r.wantRecords("mailer.dlq", 0)
	r.wantRecords("mailer.retry.1s", 0)
}
