// A group without offsets whose service has processed messages.

package kafka

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/inbox/internal/kafkalink"
)

// remembered returns an error when the group has no offset at all, and the table has records of the
// service: the group was deleted, or its offsets have expired. Beginning with the first messages
// would repeat the effects of those that are older than the records.
//
// A new group meets no false alarm. Its members commit their first offsets before they handle
// messages, so that there are offsets where there are records. The records are looked up first:
// another member may make both meanwhile.
func (c *Consumer) remembered(ctx context.Context, k *kafkalink.Link, topics map[string][]int) error {
	records, err := c.in.Remembers(ctx)
	if err != nil || !records {
		return err
	}
	offsets, err := k.Committed(ctx, c.group, topics)
	if err != nil {
		return err
	}
	for _, partitions := range offsets {
		if len(partitions) > 0 {
			return nil
		}
	}
	return &finalError{fmt.Errorf("the service has processed messages, and its group %s has no offsets: they have expired, or were deleted. "+
		"From the first messages on, those that are older than the records would have their effects again. Choose where to begin: "+
		"kafka-consumer-groups.sh --bootstrap-server HOST:9092 --group %s --topic %s --reset-offsets --to-earliest|--to-latest|--to-datetime TIME --execute",
		c.group, c.group, strings.Join(c.cfg.Topics, " --topic "))}
}
