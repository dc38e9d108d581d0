// Package devenv gives tests, the demo and the benchmarks what they need around the relay: real
// private PostgreSQL, RabbitMQ, Kafka and Prometheus servers, certificates, a TCP proxy that breaks
// connections on purpose, an order service that writes outbox rows, consumers, a checker that
// compares the two histories, and the relay as a process. It is never linked into the relay.
//
// Whatever it starts ends with the process that started it, also when that process is killed
// (processes/watcher.go). A server that cannot be had is an error that names what is missing, never
// a skip.
package devenv
