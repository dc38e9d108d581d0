//go:build testall

// This file runs the relays of deploy/compose.yaml on real servers: their configurations as they
// are but for the addresses, with the roles of deploy/sql and the broker's definitions.
package cli

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// composed is a configuration of deploy/compose with the addresses of this test.
func (d *deployed) composed(file string, addresses ...string) string {
	d.t.Helper()
	text := document(d.t, "deploy/compose/"+file)
	host := strings.TrimPrefix(as(d.owner, d.relayRole, ""), "postgres://")
	replaced := strings.NewReplacer(append(addresses,
		"relay@postgres:5432/shop", host, "slot: cdc_relay_kafka", "slot: "+d.slot+"_kafka\n  publication: "+d.slot,
		"0.0.0.0:9464", "127.0.0.1:0")...).Replace(text)
	if !strings.Contains(text, "slot:") {
		replaced = strings.Replace(replaced, "source:\n", "source:\n  slot: "+d.slot+"\n  publication: "+d.slot+"\n", 1)
	}
	return replaced
}

// What a newcomer starts: the event arrives in the queue that the definitions make, sent by a user
// who may write to the exchange and nothing else; and in the topic, sent by a second relay with a
// slot of its own.
func TestComposeRelaysDeliver(t *testing.T) {
	t.Parallel()
	d := deploySQL(t, "deploy/sql/01-roles.sql", "deploy/compose/passwords.sql")
	broker, err := rabbitserver.Start(await.Context(t), rabbitserver.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, broker.Close()) })
	definitions, err := filepath.Abs("../../deploy/compose/rabbitmq-definitions.json")
	must(t, err)
	_, err = broker.Ctl(await.Context(t), "import_definitions", definitions)
	must(t, err)
	kafka := servers.SharedKafka(t)
	topic := d.slot + ".order"
	must(t, kafka.CreateTopic(await.Context(t), topic, 6, 1, nil))
	t.Cleanup(func() { must(t, kafka.DeleteTopic(await.Context(t), topic)) })

	config := d.composed("rabbitmq.yaml", "rabbitmq:5672", broker.Addr())
	command := regexp.MustCompile(`command: \[(init, .*)\]`).FindStringSubmatch(document(t, "deploy/compose.yaml"))
	args := strings.Split(regexp.MustCompile(`"postgres://.*/shop"`).ReplaceAllString(command[1], d.owner), ", ")
	if last := len(args) - 1; args[last] == "relay" {
		args[last] = d.relayRole
	}
	for range 2 { // it runs at every start
		res, err := runner.RunCommand(await.Context(t), d.binary, config, args...)
		must(t, err)
		if res.Code != 0 {
			t.Fatalf("%v: exit %d: %s", args, res.Code, res.Stderr)
		}
	}
	rabbit := runner.Start(t, d.binary, config)
	must(t, rabbit.WaitReady(await.Context(t)))
	second := runner.Start(t, d.binary, d.composed("kafka.yaml", "[kafka:9092]", "['"+kafka.Brokers()[0]+"']\n    topic: "+d.slot+".{aggregate}"))
	must(t, second.WaitReady(await.Context(t)))
	d.insert(1)

	conn, err := amqp.Dial("amqp://shop:shop@" + broker.Addr() + "/")
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	eventually(t, func() string {
		message, ok, err := ch.Get("orders", true)
		must(t, err)
		if !ok {
			return "the queue is empty"
		}
		if message.Type != "created" {
			t.Errorf("what arrived is %+v", message)
		}
		return ""
	})
	k := &topical{rig: d.rig, kafka: kafka}
	if r := k.records(topic, 1)[0]; r.Header("eventType") != "created" {
		t.Errorf("what arrived is %+v", r)
	}
	for _, relay := range []*runner.Relay{rabbit, second} {
		if code := relay.Stop(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
}
