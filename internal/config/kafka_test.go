package config

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
)

const kafkaBase = "source: {url: postgres://h/d}\nsink: {kafka: {}}\n"

func TestKafkaDefaults(t *testing.T) {
	k := mustLoad(t, kafkaBase).Sink.Settings.(*kafka.Settings)
	if got := fmt.Sprintln(k.Brokers, k.Topic, k.Compression, k.TLSEnabled, k.Login() == nil); got != "[localhost:9092] outbox.event.{aggregate} none false true\n" {
		t.Errorf("the defaults are %s", got)
	}
}

func TestKafkaBrokers(t *testing.T) {
	for written, want := range map[string]string{
		"broker":                       "[broker:9092]",
		"[a, 'b:9093']":                "[a:9092 b:9093]",
		"localhost:9092":               "[localhost:9092]",
		"[localhost:9092]":             "[localhost:9092]",
		"[a:9093, 10.0.0.1:7 , b]":     "[a:9093 10.0.0.1:7 b:9092]",
		"[\n  a:1,\n  b:2\n]":          "[a:1 b:2]",
		"\"a:1, b ,c:3\"":              "[a:1 b:9092 c:3]", // as in bootstrap.servers
		"[\"[::1]\", \"[fe80::1]:7\"]": "[[::1]:9092 [fe80::1]:7]",
		"\"${BROKERS}\"":               "[x:9092 y:2]",
	} {
		c := mustLoad(t, "source: {url: postgres://h/d}\nsink: {kafka: {brokers: "+written+"}}\n", "BROKERS=x,y:2")
		if got := fmt.Sprint(c.Sink.Settings.(*kafka.Settings).Brokers); got != want {
			t.Errorf("%s is %s, want %s", written, got, want)
		}
	}
}
