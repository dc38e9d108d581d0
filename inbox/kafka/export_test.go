package kafka

import (
	"context"
	"errors"

	kafkago "github.com/segmentio/kafka-go"
)

// SetGroup makes the consumer a member of another group than its service's.
func (c *Consumer) SetGroup(group string) { c.group = group }

// Overtaken is whether a process that is about to read an offset, which the broker lacks, takes the
// messages for processed by another.
func (c *Consumer) Overtaken(ctx context.Context, topic string, from int64) bool {
	k := c.connect(nil)
	defer k.Close()
	return errors.Is(c.judge(ctx, k, &partition{topic: topic}, from, kafkago.OffsetOutOfRange), errOvertaken)
}

// DeleteBefore deletes messages as retention does.
func (c *Consumer) DeleteBefore(ctx context.Context, topic string, offset int64) error {
	k := c.connect(nil)
	defer k.Close()
	return k.DeleteBefore(ctx, topic, 0, offset)
}
