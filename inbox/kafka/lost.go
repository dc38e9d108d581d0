// Messages or offsets that the broker no longer has, and other errors of reading.

package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/cdc-relay/cdc-relay/inbox/internal/kafkalink"
)

// LostError says that the broker does not have the messages that are next for the group. Some were
// deleted before they were processed, or the topic is not the one that the offset is of. Nothing is
// skipped until somebody has reset the offset.
type LostError struct {
	Group     string // the consumer group
	Topic     string // the topic that is not read on
	Partition int    // the partition of it
	Next      int64  // the offset of the next message to process
	First     int64  // the offset of the first message that the broker has
	After     int64  // the offset after the last one
}

// Error names what is lost, and the command that accepts it.
func (e *LostError) Error() string {
	why := fmt.Sprintf("%d messages were deleted before they were processed", e.First-e.Next)
	if e.Next > e.After {
		why = "the topic was deleted and created again, or its last messages were lost"
	}
	return fmt.Sprintf("read %s-%d: the next message for group %s is %d, and the broker has those from %d to before %d: %s. "+
		"When that is understood, go on with the first message there is: kafka-consumer-groups.sh --bootstrap-server HOST:9092 --group %s --topic %s:%d --reset-offsets --to-earliest --execute",
		e.Topic, e.Partition, e.Group, e.Next, e.First, e.After, why, e.Group, e.Topic, e.Partition)
}

// errTopicGone ends a membership: the topic that is read does not exist any more. The one of the
// same name that may follow is another: it is read from the group's offset, which the broker
// deletes with the topic.
var errTopicGone = errors.New("the topic does not exist any more")

// errOvertaken ends a membership: the group has passed what this process is about to read. It was
// frozen, and does not know yet that another has its partitions, has handled these messages and
// deleted them.
var errOvertaken = errors.New("another process has processed the messages")

// judge returns the error that ends a session after a read has failed, or nil when the read is made
// again.
func (c *Consumer) judge(ctx context.Context, k *kafkalink.Link, p *partition, from int64, err error) error {
	switch {
	case errors.Is(err, kafkago.OffsetOutOfRange):
		there, err := k.Ends(ctx, p.topic, []int{p.id})
		if err != nil {
			return nil //nolint:nilerr // the read is made again, and says it again
		}
		if e := there[p.id]; from < e.First || from > e.After {
			if at, err := k.Committed(ctx, c.group, map[string][]int{p.topic: {p.id}}); err != nil {
				return nil //nolint:nilerr // as above
			} else {
				return c.gone(p, from, e, at[p.topic][p.id])
			}
		}
		return nil
	case errors.Is(err, kafkago.UnknownTopicOrPartition), errors.Is(err, protocol.ErrNoTopic):
		p.forget()
		return fmt.Errorf("read %s-%d: %w", p.topic, p.id, errTopicGone)
	case isRefused(err):
		return fmt.Errorf("read %s-%d: %w", p.topic, p.id, err)
	}
	return nil
}

// gone returns what it means that the broker does not have the offset that is read: the group may
// have committed a later one meanwhile.
func (c *Consumer) gone(p *partition, from int64, there kafkalink.Ends, committed int64) error {
	if committed > from {
		return fmt.Errorf("read %s-%d: %w", p.topic, p.id, errOvertaken)
	}
	return &LostError{Group: c.group, Topic: p.topic, Partition: p.id, Next: from, First: there.First, After: there.After}
}

// errUnreadable ends a membership: the brokers are looked up again.
var errUnreadable = errors.New("reading has failed for a while")

// endsMembership is whether another session of the same membership would meet the error, too.
func endsMembership(err error) bool {
	var lost *LostError
	return errors.As(err, &lost) || errors.Is(err, errTopicGone) || errors.Is(err, errOvertaken) || errors.Is(err, errUnreadable) || isRefused(err)
}

// isRefused is whether the broker refuses the login or a right.
func isRefused(err error) bool {
	for _, code := range []kafkago.Error{
		kafkago.SASLAuthenticationFailed, kafkago.UnsupportedSASLMechanism, kafkago.IllegalSASLState, kafkago.TopicAuthorizationFailed,
		kafkago.GroupAuthorizationFailed, kafkago.ClusterAuthorizationFailed,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

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
