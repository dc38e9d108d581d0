// Why an event can never become a record.

package record

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// MaxTopic is how long the name of a topic may be.
const MaxTopic = 249

// What is wrong with a topic. They are shared by all events concerned.
var (
	topicNull = sink.PermanentFault(sink.NullInTemplate, "topic has a NULL in its template")
	topicNone = sink.PermanentFault(sink.Invalid, "topic name is empty")
	topicLong = sink.PermanentFault(sink.Invalid, "topic name is longer than the 249 characters that Kafka allows")
	topicDots = sink.PermanentFault(sink.Invalid, "topic name is '.' or '..', which Kafka does not allow")
	tooEarly  = sink.PermanentFault(sink.Invalid, "the time is before 1970, a Kafka record carries none")
	topicChar = sink.PermanentFault(sink.Invalid, "topic name has a character other than letters, digits, '.', '_' and '-'")
)

// CheckTopic returns the fault of a topic's name, as
// org.apache.kafka.common.internals.Topic.validate does.
func CheckTopic(name []byte) *sink.Fault {
	switch {
	case len(name) == 0:
		return topicNone
	case len(name) > MaxTopic:
		return topicLong
	case string(name) == "." || string(name) == "..":
		return topicDots
	}
	for _, c := range name {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return topicChar
	}
	return nil
}

// TopicName names a topic as a fault does.
func TopicName(topic string) string { return fmt.Sprintf("topic %q", topic) }
