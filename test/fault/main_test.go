// Package fault runs the real relay between a real PostgreSQL and a real RabbitMQ or Kafka, breaks something, and asks the checker:
// nothing lost, order kept, duplicates within the bound. What takes longer than some seconds is in test/long.
package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

func TestMain(m *testing.M) { devenv.Main(m) }
