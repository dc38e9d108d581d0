// Records as messages, what a failure and a replay change of them, and how they are published.

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
	retryCount          = "x-retry-count"        // attempts that have failed
	retryAt             = "x-retry-at"           // of the next attempt, in Unix milliseconds
	firstFailedAt       = "first_failed_at"      // RFC 3339, as failedAt
	originalDestination = "original_destination" // the topic that it was published to
	failureReason       = "failure_reason"
	failureClass        = "failure_class"
	attempts            = "attempts"
	failedAt            = "failed_at"
	consumerService     = "consumer_service"
)

// ours are all of them. A handler does not see them, at no attempt.
var ours = []string{retryCount, retryAt, firstFailedAt, originalDestination, failureReason, failureClass, attempts, failedAt, consumerService}

// message makes the message of a record. In a topic of others the headers of a retry say nothing.
func (c *Consumer) message(r *kafkago.Message) inbox.Message {
	m := inbox.Message{
		Key: string(r.Key), Payload: bytes.Clone(r.Value), Headers: make(map[string]string, len(r.Headers)),
		Committed: r.Time, Attempt: 1, Source: r.Topic,
	}
	for _, h := range r.Headers {
		m.Headers[h.Key] = string(h.Value)
	}
	if c.isOwn(r.Topic) {
		if source := m.Headers[originalDestination]; source != "" {
			m.Source = source
		}
		if n, err := strconv.Atoi(m.Headers[retryCount]); err == nil && n > 0 {
			m.Attempt += n
		}
		m.FirstFailed, _ = time.Parse(time.RFC3339Nano, m.Headers[firstFailedAt]) //nolint:errcheck // then it is not known
	}
	for _, name := range ours {
		delete(m.Headers, name)
	}
	for name, field := range map[string]*string{"id": &m.ID, "eventType": &m.Type, "aggregateType": &m.Aggregate} {
		*field = m.Headers[name]
		delete(m.Headers, name)
	}
	return m
}

// due is when an attempt may begin.
func (c *Consumer) due(r *kafkago.Message) time.Time {
	level, waits := c.levelOf(r.Topic)
	if !waits {
		return time.Time{}
	}
	at, err := strconv.ParseInt(header(r, retryAt), 10, 64)
	if err != nil {
		return r.Time.Add(level)
	}
	// The clock of the process that wrote it may be wrong: nothing waits longer than its level.
	return earlier(time.UnixMilli(at), time.Now().Add(level))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// header is a header's value, the last one of that name, "" if there is none.
func header(r *kafkago.Message, name string) string {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// again is a record for another topic: with the same key, value, time and headers, and with ours in
// the place of those that it has.
func again(r *kafkago.Message, topic string, added ...kafkago.Header) kafkago.Message {
	headers := slices.DeleteFunc(slices.Clone(r.Headers), func(h kafkago.Header) bool { return slices.Contains(ours, h.Key) })
	return kafkago.Message{Topic: topic, Key: r.Key, Value: r.Value, Time: r.Time, Headers: append(headers, added...)}
}

func text(name, value string) kafkago.Header { return kafkago.Header{Key: name, Value: []byte(value)} }

func at(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// forRetry is a record that waits for another attempt.
func (c *Consumer) forRetry(r *kafkago.Message, source string, f inbox.Failure) kafkago.Message {
	return again(r, c.retryTopic(f.Level),
		text(retryCount, strconv.Itoa(f.Attempts)),
		text(retryAt, strconv.FormatInt(f.LastFailed.Add(f.Level).UnixMilli(), 10)),
		text(firstFailedAt, at(f.FirstFailed)),
		text(originalDestination, source),
		text(failureReason, f.Reason),
	)
}

// forDeadLetter is a record that is given up.
func (c *Consumer) forDeadLetter(r *kafkago.Message, source string, f inbox.Failure) kafkago.Message {
	return again(r, c.deadLetterTopic(),
		text(failureReason, f.Reason),
		text(failureClass, string(f.Class)),
		text(attempts, strconv.Itoa(f.Attempts)),
		text(firstFailedAt, at(f.FirstFailed)),
		text(failedAt, at(f.LastFailed)),
		text(originalDestination, source),
		text(consumerService, c.in.Service()),
	)
}

// forReturn is a dead letter that is processed again, as if for the first time.
func (c *Consumer) forReturn(r *kafkago.Message) kafkago.Message {
	return again(r, c.returnTopic(), text(originalDestination, header(r, originalDestination)))
}

// publish returns nil once all in-sync replicas have the message. After an error it may be there
// or not: then the message that it was made from is delivered again, and the record of its event
// sees to it that two copies have one effect.
func publish(ctx context.Context, k *link, m kafkago.Message) error {
	err := k.out.Write(ctx, &m)
	if err == nil {
		return nil
	}
	if errors.Is(err, kafkago.MessageSizeTooLarge) || errors.Is(err, kafkago.RecordListTooLarge) {
		return fmt.Errorf("write to %s: the message with key %q is larger than the topic allows: raise its max.message.bytes and Config.MaxMessageBytes: %w", m.Topic, m.Key, err)
	}
	return fmt.Errorf("write to %s: %w", m.Topic, err)
}

// delivery publishes the record of a message that has failed.
type delivery struct {
	c      *Consumer
	k      *link
	record *kafkago.Message
}

func (d delivery) Retry(ctx context.Context, m inbox.Message, f inbox.Failure) error {
	return publish(ctx, d.k, d.c.forRetry(d.record, m.Source, f))
}

func (d delivery) DeadLetter(ctx context.Context, m inbox.Message, f inbox.Failure) error {
	return publish(ctx, d.k, d.c.forDeadLetter(d.record, m.Source, f))
}
