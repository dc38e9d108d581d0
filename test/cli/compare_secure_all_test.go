//go:build testall

package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// compareOverTLS: compare takes the login and the TLS of the configuration's sink, and says in one
// line what is refused.
func compareOverTLS(t *testing.T, kafka *kafkaserver.Kafka) {
	s := &sameTopics{t, kafka, kafka.Topic(t, 1), kafka.Topic(t, 1)}
	s.write(s.theirs, record(0, "e", "k", "v"))
	s.write(s.ours, record(0, "e", "k", "v"))
	config := func(password, ca string) string {
		return fmt.Sprintf("source: {url: postgres://h/d}\nsink: {kafka: {brokers: ['%s'], tls: {enabled: true, ca: '%s'}, sasl: {mechanism: scram-sha-512, username: relay, password: %s}}}\n",
			kafka.SASLTLSBrokers()[0], ca, password)
	}
	args := []string{"--theirs", s.theirs, "--ours", s.ours, "--from", "beginning", "--lag", "1s"}
	if got, _ := compareDebezium(t, config("mqsecret", kafka.Certs().CA), 0, args...); got.Equal != 1 {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct{ config, words string }{
		{config("wrong", kafka.Certs().CA), "SASL"},
		{config("mqsecret", kafka.Certs().StrangerCA), "certificate signed by unknown authority"},
	} {
		res, err := runner.RunCommand(await.Context(t), runner.Build(t), c.config, append([]string{"compare", "debezium"}, args...)...)
		must(t, err)
		line := refusal(t, res, 1, "open theirs", c.words)
		if strings.Contains(line, "wrong") || strings.Contains(line, "mqsecret") {
			t.Errorf("the line has the password: %s", line)
		}
	}
}

// compares is the same on RabbitMQ.
func (m *mutual) compares(t *testing.T) {
	config := func(password, ca string) string {
		return fmt.Sprintf("source: {url: postgres://h/d}\nsink: {rabbitmq: {url: 'amqps://%s/', username: relay, password: %s, tls: {ca: '%s', cert: '%s', key: '%s'}}}\n",
			m.mq.TLSAddr(), password, ca, m.certs.Client.Cert, m.certs.Client.Key)
	}
	for _, c := range []struct {
		config string
		words  []string
	}{
		{config(m.password, m.certs.CA), []string{"no event was compared"}},
		{config("wrong", m.certs.CA), []string{"open theirs", "log in to " + m.mq.TLSAddr()}},
		{config(m.password, m.certs.StrangerCA), []string{"open theirs", "certificate signed by unknown authority"}},
	} {
		res, err := runner.RunCommand(await.Context(t), runner.Build(t), c.config, "compare", "debezium", "--theirs", "amq.topic", "--ours", "amq.fanout", "--for", "1s", "--lag", "1s")
		must(t, err)
		line := refusal(t, res, 1, c.words...)
		if strings.Contains(line, "wrong") || strings.Contains(line, "mqsecret") {
			t.Errorf("the line has the password: %s", line)
		}
	}
}
