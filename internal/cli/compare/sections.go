// Which broker the configuration names, for flags that do not.

package compare

import (
	"github.com/cdc-relay/cdc-relay/internal/config"
	kafka "github.com/cdc-relay/cdc-relay/internal/sink/kafka/driver"
	rabbit "github.com/cdc-relay/cdc-relay/internal/sink/rabbit/driver"
)

// kafkaOf is the section of Kafka; nil: that is not the sink.
func kafkaOf(c *config.Config) *kafka.Settings {
	if c == nil {
		return nil
	}
	settings, _ := c.Sink.Settings.(*kafka.Settings)
	return settings
}

// rabbitOf is the section of RabbitMQ; nil: that is not the sink.
func rabbitOf(c *config.Config) *rabbit.Settings {
	if c == nil {
		return nil
	}
	settings, _ := c.Sink.Settings.(*rabbit.Settings)
	return settings
}
