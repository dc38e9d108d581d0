// Package debezium makes of an outbox row the record that Debezium's Outbox Event Router makes of
// it, behind its PostgreSQL connector in Kafka Connect or in Debezium Server: topic, key, value,
// headers, timestamp and partition, byte for byte.
//
// It is pure: no I/O, no clock, no goroutine. A record depends on the options, the row and the
// shape of the row's table, all of which an event of the retry table has or had: the same event
// gives the same record at every delivery.
package debezium
