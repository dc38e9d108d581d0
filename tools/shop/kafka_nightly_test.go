//go:build nightly

package main

import "testing"

// TestShopOnKafka gives the shop with Kafka in RabbitMQ's place.
func TestShopOnKafka(t *testing.T) { testShop(t, "kafka", "Kafka") }
