package kafka

import "context"

// SetGroup makes the consumer a member of another group than its service's.
func (c *Consumer) SetGroup(group string) { c.group = group }

// DeleteBefore deletes messages as retention does.
func (c *Consumer) DeleteBefore(ctx context.Context, topic string, offset int64) error {
	k := c.connect(nil)
	defer k.Close()
	return k.DeleteBefore(ctx, topic, 0, offset)
}
