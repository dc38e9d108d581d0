// Package fault runs the real relay between a real PostgreSQL and a real RabbitMQ or Kafka, breaks
// something, and asks the checker: nothing lost, order kept, duplicates within the bound. What the
// order machine does then is played by test/sim and the stories of internal/relay: here each fault
// is met once, on one kind of broker where the sinks do not differ. The faults that matter most
// have no build tag, the rest has testall; crash matrices, clusters and what takes minutes have
// nightly, most of it in test/long.
package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }
