package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kafkaBase = "source: {url: postgres://h/d}\nsink: {kafka: {}}\n"

func TestKafkaDefaults(t *testing.T) {
	k := mustLoad(t, kafkaBase).Sink
	if k.Kafka == nil || k.RabbitMQ != nil || k.Stdout != nil {
		t.Fatalf("sink is %+v, want Kafka alone", k)
	}
	if got := fmt.Sprintln(k.Kafka.Brokers, k.Kafka.Topic, k.Kafka.Compression, k.Kafka.TLS.Enabled, k.Kafka.Credentials() == nil); got != "[localhost:9092] outbox.event.{aggregate} none false true\n" {
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
		if got := fmt.Sprint(c.Sink.Kafka.Brokers); got != want {
			t.Errorf("%s is %s, want %s", written, got, want)
		}
	}
}

func TestKafkaFromTheEnvironmentAlone(t *testing.T) {
	c, err := Load("", []string{
		"CDC_RELAY_SOURCE__URL=postgres://relay@db/shop",
		"CDC_RELAY_SINK__KAFKA__BROKERS=a:1,b",
		"CDC_RELAY_SINK__KAFKA__TOPIC=events",
		"CDC_RELAY_SINK__KAFKA__COMPRESSION=zstd",
		"CDC_RELAY_SINK__KAFKA__TLS__ENABLED=true",
		"CDC_RELAY_SINK__KAFKA__TLS__CA=/ca.pem",
		"CDC_RELAY_SINK__KAFKA__SASL__MECHANISM=scram-sha-512",
		"CDC_RELAY_SINK__KAFKA__SASL__USERNAME=relay",
		"CDC_RELAY_SINK__KAFKA__SASL__PASSWORD=pa,ss",
	})
	if err != nil {
		t.Fatal(err)
	}
	k := c.Sink.Kafka
	user, password, err := k.Credentials()()
	if got := fmt.Sprintln(k.Brokers, k.Topic, k.Compression, k.TLS.Enabled, k.TLS.CA, k.SASL.Mechanism, user, password, err); got != "[a:1 b:9092] events zstd true /ca.pem scram-sha-512 relay pa,ss <nil>\n" {
		t.Errorf("got %s", got)
	}
}

// A rotated password is taken up, and a file that is gone is named.
func TestKafkaCredentialsAreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old\n")
	c := mustLoad(t, "source: {url: postgres://h/d}\nsink: {kafka: {sasl: {mechanism: plain, username: u, password: \"${file:"+file+"}\"}}}\n")
	read := c.Sink.Kafka.Credentials()
	write("new\n")
	if user, password, err := read(); user != "u" || password != "new" || err != nil {
		t.Errorf("got %s, %s, %v; want the file's present content", user, password, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(); err == nil || !strings.Contains(err.Error(), "sink.kafka.sasl.password") || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want an error that names the key and the file", err)
	}
}

// What is printed hides the login, leaves out what Load would refuse together with it, and is a
// configuration again.
func TestKafkaIsPrinted(t *testing.T) {
	for _, content := range []string{
		kafkaBase,
		"source: {url: postgres://h/d}\nsink: {kafka: {brokers: [a, \"[::1]\"], topic: events, tls: {enabled: true, ca: /c}, sasl: {mechanism: plain, username: topsecret, password: topsecret}}}\n",
	} {
		c := mustLoad(t, content)
		var printed bytes.Buffer
		if err := c.Print(&printed); err != nil {
			t.Fatal(err)
		}
		if text := printed.String(); strings.Contains(text, "topsecret") || strings.Contains(text, "lanes") || strings.Contains(text, "rabbitmq") {
			t.Errorf("printed\n%s", text)
		}
		if text := fmt.Sprintf("%#v", *c.Sink.Kafka); strings.Contains(text, "topsecret") {
			t.Errorf("%%#v shows a secret: %s", text)
		}
		again := mustLoad(t, printed.String()).Sink.Kafka
		if got, want := fmt.Sprint(again.Brokers, again.Topic, again.TLS), fmt.Sprint(c.Sink.Kafka.Brokers, c.Sink.Kafka.Topic, c.Sink.Kafka.TLS); got != want {
			t.Errorf("read again it is %s, want %s", got, want)
		}
	}
}
