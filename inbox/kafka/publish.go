// Publishing messages that have failed.

package kafka

import (
	"context"
	"errors"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/kafkalink"
)

// publish returns nil once all in-sync replicas have the message. After an error it may be there
// or not: then the message that it was made from is delivered again, and the record of its event
// sees to it that two copies have one effect.
func publish(ctx context.Context, k *kafkalink.Link, m kafkago.Message) error {
	err := k.Write(ctx, m)
	if err == nil {
		return nil
	}
	var large kafkago.MessageTooLargeError
	if errors.As(err, &large) || errors.Is(err, kafkago.MessageSizeTooLarge) {
		return fmt.Errorf("write to %s: the message with key %q is larger than the topic allows: raise its max.message.bytes and Config.MaxMessageBytes: %w", m.Topic, m.Key, err)
	}
	return fmt.Errorf("write to %s: %w", m.Topic, err)
}

// delivery publishes the record of a message that has failed.
type delivery struct {
	c      *Consumer
	k      *kafkalink.Link
	record *kafkago.Message
}

func (d delivery) Retry(ctx context.Context, m inbox.Message, f inbox.Failure) error {
	return publish(ctx, d.k, d.c.forRetry(d.record, m.Source, f))
}

func (d delivery) DeadLetter(ctx context.Context, m inbox.Message, f inbox.Failure) error {
	return publish(ctx, d.k, d.c.forDeadLetter(d.record, m.Source, f))
}
