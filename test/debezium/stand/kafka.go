package stand

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
)

// Topics are those of a cluster that were not there before.
type Topics struct {
	Group  *cases.Group
	Kafka  *kafkaserver.Kafka
	Before []string // or Only
	Only   []string // not nil: these and no others
	Begin  time.Time
}

func (k *Topics) names(ctx context.Context) ([]string, error) {
	if k.Only != nil {
		return k.Only, nil
	}
	all, err := k.Kafka.Topics(ctx)
	return slices.DeleteFunc(all, func(name string) bool { return slices.Contains(k.Before, name) }), err
}

// Records implements Destination.
func (k *Topics) Records(ctx context.Context, ends string, failed func() error) ([]cases.Record, error) {
	err := Await(ctx, failed, func() (bool, error) {
		names, err := k.names(ctx)
		if err != nil {
			return false, err
		}
		if ends := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.Contains(name, "end") }); len(ends) > 0 {
			names = ends // the routes of last rows say so, unless an option hides it
		}
		for _, name := range names {
			records, err := k.Kafka.Records(ctx, name)
			if err != nil {
				return false, err
			}
			if slices.ContainsFunc(records, func(r kafkaserver.Record) bool { return strings.Contains(r.Header("id"), ends) }) {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return k.Now(ctx)
}

// Now implements Destination.
func (k *Topics) Now(ctx context.Context) ([]cases.Record, error) {
	names, err := k.names(ctx)
	if err != nil {
		return nil, err
	}
	var all []cases.Record
	for _, name := range names {
		records, err := k.Kafka.Records(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			all = append(all, k.record(name, r))
		}
	}
	cases.Sort(all)
	return all, nil
}

func (k *Topics) record(topic string, r kafkaserver.Record) cases.Record {
	record := cases.Record{
		Topic: topic, Partition: r.Partition, Key: cases.Of(r.Key), Value: cases.Of(r.Value), Time: cases.Timestamp(r.Time, k.Begin), Offset: r.Offset,
	}
	if r.Key == nil && !k.Group.Placed() {
		record.Partition = -1
	}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, cases.Header{Name: h.Name, Value: cases.Of(h.Value)})
	}
	return record
}
