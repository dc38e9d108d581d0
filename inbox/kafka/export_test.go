package kafka

import "context"

// DeleteBefore deletes messages as retention does.
func (c *Consumer) DeleteBefore(ctx context.Context, topic string, offset int64) error {
	k := c.connect(nil)
	defer k.Close()
	return k.DeleteBefore(ctx, topic, 0, offset)
}
