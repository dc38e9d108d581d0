//go:build testall

// Package faults runs consumers of the packages inbox/rabbit and inbox/kafka as processes, stops
// each at one of five points of a message's way, and breaks something there: the process is killed,
// the broker is, the database is. In the end the database of the effects and the broker are read:
// each event has had its effect exactly once, or is a dead letter and has had none.
package faults

import (
	"os"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(jobVariable); text != "" {
		os.Exit(consume(text)) // this process is a consumer
	}
	servers.Main(m)
}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	faults(t, newRabbit(t))
}

func TestKafka(t *testing.T) {
	t.Parallel()
	faults(t, newKafka(t))
}
