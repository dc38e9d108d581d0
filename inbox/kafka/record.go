// How a record of Kafka becomes a message for the inbox, and which headers a retry, a dead letter
// and a replay add to it.

package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// Headers of a message in the service's own topics. Producers must not use these names.
const (
	headerRetryCount = "x-retry-count" // how many attempts have failed
	// when the next attempt is due, in Unix milliseconds
	headerRetryAt       = "x-retry-at"
	headerFirstFailedAt = "first_failed_at" // RFC 3339, like headerFailedAt
	// the topic that the message was first published to
	headerOriginalDestination = "original_destination"
	headerFailureReason       = "failure_reason"
	headerFailureClass        = "failure_class"
	headerAttempts            = "attempts"
	headerFailedAt            = "failed_at"
	headerConsumerService     = "consumer_service"
)

// ownHeaders are the names of all these headers. A handler never sees them.
var ownHeaders = []string{headerRetryCount, headerRetryAt, headerFirstFailedAt, headerOriginalDestination, headerFailureReason, headerFailureClass, headerAttempts, headerFailedAt, headerConsumerService}

// newMessage makes the message of a record. The headers of a retry count only in the service's own
// topics, because in other topics anybody may have written them.
func (c *Consumer) newMessage(r *kafkago.Message) inbox.Message {
	m := inbox.Message{
		Key: string(r.Key), Payload: bytes.Clone(r.Value), Headers: make(map[string]string, len(r.Headers)),
		Committed: r.Time, Attempt: 1, Source: r.Topic,
	}
	for _, h := range r.Headers {
		m.Headers[h.Key] = string(h.Value)
	}
	m.ContentType = m.Headers["content-type"]
	if c.isOwn(r.Topic) {
		if source := m.Headers[headerOriginalDestination]; source != "" {
			m.Source = source
		}
		if n, err := strconv.Atoi(m.Headers[headerRetryCount]); err == nil && n > 0 {
			m.Attempt += n
		}
		m.FirstFailed, _ = time.Parse(time.RFC3339Nano, m.Headers[headerFirstFailedAt]) //nolint:errcheck // then it is not known
	}
	for _, name := range ownHeaders {
		delete(m.Headers, name)
	}
	for name, field := range map[string]*string{"id": &m.ID, "eventType": &m.Type, "aggregateType": &m.Aggregate} {
		*field = m.Headers[name]
		delete(m.Headers, name)
	}
	return m
}

// dueAt returns the time before which the message must not be handled.
func (c *Consumer) dueAt(r *kafkago.Message) time.Time {
	level, waits := c.levelOf(r.Topic)
	if !waits {
		return time.Time{}
	}
	at, err := strconv.ParseInt(headerValue(r, headerRetryAt), 10, 64)
	if err != nil {
		return r.Time.Add(level)
	}
	// The clock of the process that wrote the time may be wrong. So no message waits longer than
	// its level.
	now := time.Now()
	return now.Add(min(time.UnixMilli(at).Sub(now), level))
}

// headerValue returns the value of the last header with a name, or "" when there is none.
func headerValue(r *kafkago.Message, name string) string {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// republished makes a record for another topic, with the same key, value, time and headers. The
// added headers take the place of our earlier ones.
func republished(r *kafkago.Message, topic string, added ...kafkago.Header) kafkago.Message {
	headers := slices.DeleteFunc(slices.Clone(r.Headers), func(h kafkago.Header) bool { return slices.Contains(ownHeaders, h.Key) })
	return kafkago.Message{Topic: topic, Key: r.Key, Value: r.Value, Time: r.Time, Headers: append(headers, added...)}
}

func newHeader(name, value string) kafkago.Header {
	return kafkago.Header{Key: name, Value: []byte(value)}
}

func timestampText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// retryOf makes the record of a message that waits for another attempt.
func (c *Consumer) retryOf(r *kafkago.Message, source string, f inbox.Failure) kafkago.Message {
	return republished(r, c.retryTopic(f.Level),
		newHeader(headerRetryCount, strconv.Itoa(f.Attempts)),
		newHeader(headerRetryAt, strconv.FormatInt(f.LastFailed.Add(f.Level).UnixMilli(), 10)),
		newHeader(headerFirstFailedAt, timestampText(f.FirstFailed)),
		newHeader(headerOriginalDestination, source),
		newHeader(headerFailureReason, f.Reason),
	)
}

// deadLetterOf makes the record of a message that is given up.
func (c *Consumer) deadLetterOf(r *kafkago.Message, source string, f inbox.Failure) kafkago.Message {
	return republished(r, c.deadLetterTopic(),
		newHeader(headerFailureReason, f.Reason),
		newHeader(headerFailureClass, string(f.Class)),
		newHeader(headerAttempts, strconv.Itoa(f.Attempts)),
		newHeader(headerFirstFailedAt, timestampText(f.FirstFailed)),
		newHeader(headerFailedAt, timestampText(f.LastFailed)),
		newHeader(headerOriginalDestination, source),
		newHeader(headerConsumerService, c.in.Service()),
	)
}

// returnOf makes the record of a dead letter that is processed again, as if for the first time.
func (c *Consumer) returnOf(r *kafkago.Message) kafkago.Message {
	return republished(r, c.returnTopic(), newHeader(headerOriginalDestination, headerValue(r, headerOriginalDestination)))
}

// publishRecord returns nil once all in-sync replicas have the record. After an error the record
// may be in the log or not. The message that it was made from is then delivered again, and because
// of the record of its event two copies have one effect.
func publishRecord(ctx context.Context, k *link, m kafkago.Message) error {
	err := k.writers.Write(ctx, &m)
	if err == nil {
		return nil
	}
	if errors.Is(err, kafkago.MessageSizeTooLarge) || errors.Is(err, kafkago.RecordListTooLarge) {
		return fmt.Errorf("write to %s: the message with key %q is larger than the topic allows: raise its max.message.bytes and Config.MaxMessageBytes: %w", m.Topic, m.Key, err)
	}
	return fmt.Errorf("write to %s: %w", m.Topic, err)
}

// delivery implements inbox.Publisher for one record.
type delivery struct {
	c      *Consumer
	k      *link
	record *kafkago.Message
}

func (d delivery) Retry(ctx context.Context, m inbox.Message, f inbox.Failure) error {
	return publishRecord(ctx, d.k, d.c.retryOf(d.record, m.Source, f))
}

func (d delivery) DeadLetter(ctx context.Context, m inbox.Message, f inbox.Failure) error {
	return publishRecord(ctx, d.k, d.c.deadLetterOf(d.record, m.Source, f))
}
