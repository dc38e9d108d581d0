// Rights on topics and producer ids.

package kafkaserver

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go/protocol/createacls"
	"github.com/segmentio/kafka-go/protocol/deleteacls"
	"github.com/segmentio/kafka-go/protocol/describeacls"
)

// Values of the protocol's ACLs.
const (
	literalPattern  = 3
	prefixPattern   = 4
	anyOperation    = 1
	allOperations   = 2
	read            = 3
	write           = 4
	describe        = 8
	idempotentWrite = 12
	deny            = 2
	allow           = 3
	kafkaCluster    = "kafka-cluster"
)

// Deny forbids a principal ("User:relay", "User:ANONYMOUS") to write to a topic; describing and
// reading it stay allowed, for everybody. With Authorizer only. It returns when every running
// broker obeys.
func (k *Kafka) Deny(ctx context.Context, topic, principal string) error {
	if err := k.denyOn(ctx, topicResource, topic, write, principal); err != nil {
		return fmt.Errorf("deny %s to write to %s: %w", principal, topic, err)
	}
	return nil
}

// Allow takes back what Deny has done to a topic for a principal.
func (k *Kafka) Allow(ctx context.Context, topic, principal string) error {
	if err := k.allowOn(ctx, topicResource, topic, principal); err != nil {
		return fmt.Errorf("allow %s to write to %s: %w", principal, topic, err)
	}
	return nil
}

// DenyIdempotence forbids a principal to write with a producer id, by the cluster's ACL and by a
// denial for all topics: the broker takes the right to write to any topic for the right to a
// producer id.
func (k *Kafka) DenyIdempotence(ctx context.Context, principal string) error {
	err := k.denyOn(ctx, clusterResource, kafkaCluster, idempotentWrite, principal)
	if err == nil {
		err = k.denyOn(ctx, topicResource, "*", write, principal)
	}
	if err != nil {
		return fmt.Errorf("deny %s to write with a producer id: %w", principal, err)
	}
	return nil
}

// AllowIdempotence takes it back.
func (k *Kafka) AllowIdempotence(ctx context.Context, principal string) error {
	err := k.allowOn(ctx, topicResource, "*", principal)
	if err == nil {
		err = k.allowOn(ctx, clusterResource, kafkaCluster, principal)
	}
	if err != nil {
		return fmt.Errorf("allow %s to write with a producer id: %w", principal, err)
	}
	return nil
}

// Grant gives a principal the rights that docs/kafka.md#rights asks for: Write, Describe and Read
// on the topics whose name begins with prefix. With Authorizer and the setting
// allow.everyone.if.no.acl.found=false only. It returns when every running broker obeys.
func (k *Kafka) Grant(ctx context.Context, prefix, principal string) error {
	err := k.createACLs(ctx, acl(topicResource, prefix, prefixPattern, principal, write, allow),
		acl(topicResource, prefix, prefixPattern, principal, describe, allow),
		acl(topicResource, prefix, prefixPattern, principal, read, allow))
	if err == nil {
		err = k.awaitACLs(ctx, acl(topicResource, prefix, prefixPattern, principal, anyOperation, allow), 3)
	}
	if err != nil {
		return fmt.Errorf("grant %s to write to topics %s*: %w", principal, prefix, err)
	}
	return nil
}

func acl(kind int8, name string, pattern int8, principal string, operation, permission int8) createacls.RequestACLs {
	return createacls.RequestACLs{
		ResourceType: kind, ResourceName: name, ResourcePatternType: pattern,
		Principal: principal, Host: "*", Operation: operation, PermissionType: permission,
	}
}

func (k *Kafka) createACLs(ctx context.Context, acls ...createacls.RequestACLs) error {
	return change(ctx, k, &createacls.Request{Creations: acls}, func(res *createacls.Response) error {
		for _, r := range res.Results {
			if err := KafkaError(r.ErrorCode, r.ErrorMessage); err != nil {
				return err
			}
		}
		return nil
	})
}

// denyOn adds two ACLs: once a resource has one, nobody may do to it what none of them allows.
func (k *Kafka) denyOn(ctx context.Context, kind int8, name string, operation int8, principal string) error {
	err := k.createACLs(ctx, acl(kind, name, literalPattern, "User:*", allOperations, allow),
		acl(kind, name, literalPattern, principal, operation, deny))
	if err != nil {
		return err
	}
	return k.awaitACLs(ctx, acl(kind, name, literalPattern, principal, anyOperation, deny), 1)
}

// allowOn removes the denials of a principal; that everybody may do everything stays.
func (k *Kafka) allowOn(ctx context.Context, kind int8, name, principal string) error {
	err := change(ctx, k, &deleteacls.Request{
		Filters: []deleteacls.RequestFilter{{
			ResourceTypeFilter: kind, ResourceNameFilter: name, ResourcePatternTypeFilter: literalPattern,
			PrincipalFilter: principal, HostFilter: "*", Operation: anyOperation, PermissionType: deny,
		}},
	}, func(res *deleteacls.Response) error {
		return KafkaError(res.FilterResults[0].ErrorCode, res.FilterResults[0].ErrorMessage)
	})
	if err != nil {
		return err
	}
	return k.awaitACLs(ctx, acl(kind, name, literalPattern, principal, anyOperation, deny), 0)
}

// awaitACLs asks the brokers' authorizers themselves, until each has n that are like one.
func (k *Kafka) awaitACLs(ctx context.Context, like createacls.RequestACLs, n int) error {
	return k.everywhere(ctx, func(addr string) (bool, error) {
		res, err := askOne[*describeacls.Response](ctx, addr, &describeacls.Request{Filter: describeacls.ACLFilter{
			ResourceTypeFilter: like.ResourceType, ResourceNameFilter: like.ResourceName, ResourcePatternTypeFilter: like.ResourcePatternType,
			PrincipalFilter: like.Principal, HostFilter: like.Host, Operation: like.Operation, PermissionType: like.PermissionType,
		}})
		if err != nil {
			return false, err
		}
		if err := KafkaError(res.ErrorCode, res.ErrorMessage); err != nil {
			return false, err
		}
		found := 0
		for _, r := range res.Resources {
			found += len(r.ACLs)
		}
		return found == n, nil
	})
}
