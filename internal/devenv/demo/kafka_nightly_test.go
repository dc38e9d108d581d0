//go:build nightly

package main

import "testing"

// TestDemoOnKafka gives the demo with Kafka in RabbitMQ's place.
func TestDemoOnKafka(t *testing.T) { testDemo(t, "kafka", "Kafka") }
