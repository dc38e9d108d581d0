//go:build nightly

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A Kafka of one node is killed, and finds its producers' numbers in its log.
func TestKafkaBrokerKilledUnderLoad(t *testing.T) {
	stand.Parallel(t)
	server := stand.OnKafka(stand.OwnKafka(t, kafkaserver.Options{}), stand.Topics{})
	killedUnderLoad(t, server, budget, "pipelined", "none")
}
