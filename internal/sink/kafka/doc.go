// Package kafka publishes events to Apache Kafka: record batches of this package's own encoder, from an idempotent producer
// per stream of a partition, acknowledged by all in-sync replicas. What a broker says of each batch (its error code, the
// record errors in it, no answer) becomes a sink.Outcome.
package kafka
