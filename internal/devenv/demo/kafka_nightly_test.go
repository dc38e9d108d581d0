//go:build nightly

package main

import "testing"

// TestDemoOnKafka gives the demo with Kafka in RabbitMQ's place, and with the worst day.
func TestDemoOnKafka(t *testing.T) {
	testDemo(t, "kafka", "Kafka", []string{
		"The disk guard defers", "The slot is still there", "events go directly again", "The standby is promoted", "the relay went on by itself, when",
		"Nothing is lost", "The worst day", "$ cdc-relay recover", "The relay went on by itself",
	})
}
