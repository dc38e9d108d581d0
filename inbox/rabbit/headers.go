// Messages that are published again: the same body and properties, and headers that say what
// happened.

package rabbit

import (
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// The headers of the relay that are fields of inbox.Message.
const (
	headerAggregate = "aggregate_type"
	headerKey       = "aggregate_id"
	headerCommitted = "timestamp_in_ms"
	headerID        = "id" // of a Debezium profile
)

// The headers that are ours. An event's own of these names are left out at every attempt.
const (
	headerRetries     = "x-retry-count" // attempts that have failed
	headerReason      = "failure_reason"
	headerClass       = "failure_class"
	headerAttempts    = "attempts"
	headerFirstFailed = "first_failed_at"
	headerFailed      = "failed_at"
	headerQueue       = "original_destination"
	headerService     = "consumer_service"
)

var ownHeaders = []string{headerRetries, headerReason, headerClass, headerAttempts, headerFirstFailed, headerFailed, headerQueue, headerService}

// isOwn is whether a header is written by this package, or by the broker when it hands a message
// on. The handler does not see them.
func isOwn(name string) bool { return slices.Contains(ownHeaders, name) || isBrokers(name) }

// isBrokers is whether the broker has written a header. Published again they would lie: RabbitMQ
// before 4.0 drops a message that expires on its way to a queue that its x-death names already.
func isBrokers(name string) bool {
	return name == "x-death" || name == "x-delivery-count" || name == "x-acquired-count" ||
		strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// again is a message with the same content. Left out are headers that are not the event's, CC,
// which would send copies to others, an expiration, which would end the message where it waits, and
// the user, whom the broker compares with ours.
func again(d *amqp.Delivery) amqp.Publishing {
	headers := make(amqp.Table, len(d.Headers)+len(ownHeaders))
	for name, value := range d.Headers {
		if !isOwn(name) && name != "CC" && name != "BCC" {
			headers[name] = value
		}
	}
	return amqp.Publishing{
		Headers: headers, Body: d.Body, DeliveryMode: amqp.Persistent,
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Priority: d.Priority, CorrelationId: d.CorrelationId,
		ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId,
	}
}

// retryOf is the message for its next attempt.
func retryOf(d *amqp.Delivery, f inbox.Failure) amqp.Publishing {
	p := again(d)
	p.Headers[headerRetries] = int64(f.Attempts)
	p.Headers[headerReason] = f.Reason
	p.Headers[headerFirstFailed] = stamp(f.FirstFailed)
	return p
}

// deadLetterOf is the message that is given up.
func deadLetterOf(d *amqp.Delivery, f inbox.Failure, service string) amqp.Publishing {
	p := again(d)
	p.Headers[headerReason] = f.Reason
	p.Headers[headerClass] = string(f.Class)
	p.Headers[headerAttempts] = int64(f.Attempts)
	p.Headers[headerFirstFailed] = stamp(f.FirstFailed)
	p.Headers[headerFailed] = stamp(f.LastFailed)
	p.Headers[headerQueue] = service
	p.Headers[headerService] = service
	return p
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
