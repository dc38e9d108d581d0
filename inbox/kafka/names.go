// The names of the service's own topics.

package kafka

import (
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// retryTopic has the messages that wait for so long. The pause is in the name: with other levels
// there are other topics, and what waits in the old ones is still read.
func (c *Consumer) retryTopic(level time.Duration) string {
	return c.in.Service() + ".retry." + inbox.LevelName(level)
}

// returnTopic has the dead letters that a replay returns to the service, and to no other.
func (c *Consumer) returnTopic() string { return c.in.Service() + ".return" }

// ownTopics are those that the service reads besides Config.Topics.
func (c *Consumer) ownTopics() []string {
	own := []string{c.returnTopic()}
	for _, level := range c.in.Levels() {
		if topic := c.retryTopic(level); !slices.Contains(own, topic) {
			own = append(own, topic)
		}
	}
	return own
}

// isOwn is whether a topic is one of those, or was when the service had other levels.
func (c *Consumer) isOwn(topic string) bool {
	_, waits := c.levelOf(topic)
	return waits || topic == c.returnTopic()
}

// levelOf is the pause of a retry topic of the service.
func (c *Consumer) levelOf(topic string) (time.Duration, bool) {
	name, found := strings.CutPrefix(topic, c.in.Service()+".retry.")
	if !found {
		return 0, false
	}
	level, err := time.ParseDuration(name)
	return level, err == nil && inbox.LevelName(level) == name
}
