package config

import (
	"encoding/json"
	"strings"
	"testing"
)

// The entries that the API shows are those of Print, and no key that has a secret shows it. A new
// key with one is found here, as its value has to be given below.
func TestEntriesShowNoSecret(t *testing.T) {
	const secret = "topsecret-topsecret"
	values := map[string]string{
		"source.url": "postgres://u:" + secret + "@h/d?sslpassword=" + secret, "source.password": secret, "admin.tokens": "a:read:" + secret,
		"sink.rabbitmq.url": "amqp://u:" + secret + "@h/,amqp://v:" + secret + "@i/", "sink.rabbitmq.username": secret, "sink.rabbitmq.password": secret,
		"sink.kafka.sasl.username": secret, "sink.kafka.sasl.password": secret,
		"sink.kafka.sasl.oauth.client_id": secret, "sink.kafka.sasl.oauth.client_secret": secret,
		"sink.rabbitmq.oauth.client_id": secret, "sink.rabbitmq.oauth.client_secret": secret,
	}
	byToken := func(section, rest string) []string {
		section = "CDC_RELAY_SINK__" + section + "__"
		return []string{section + "TOKEN_URL=https://login.example/token", section + rest + "=" + secret}
	}
	const mechanism = "CDC_RELAY_SINK__KAFKA__SASL__MECHANISM=oauthbearer"
	more := map[string][]string{
		"sink.kafka.sasl.username": {"CDC_RELAY_SINK__KAFKA__SASL__MECHANISM=scram-sha-256", "CDC_RELAY_SINK__KAFKA__SASL__PASSWORD=" + secret},
		"sink.kafka.sasl.password": {"CDC_RELAY_SINK__KAFKA__SASL__MECHANISM=scram-sha-256", "CDC_RELAY_SINK__KAFKA__SASL__USERNAME=" + secret},

		"sink.kafka.sasl.oauth.client_id":     append(byToken("KAFKA__SASL__OAUTH", "CLIENT_SECRET"), mechanism),
		"sink.kafka.sasl.oauth.client_secret": append(byToken("KAFKA__SASL__OAUTH", "CLIENT_ID"), mechanism),
		"sink.rabbitmq.oauth.client_id":       byToken("RABBITMQ__OAUTH", "CLIENT_SECRET"),
		"sink.rabbitmq.oauth.client_secret":   byToken("RABBITMQ__OAUTH", "CLIENT_ID"),
	}
	found := 0
	for _, k := range allKeys() {
		if k.Secrets == nil {
			continue
		}
		found++
		env := append(more[k.Name], variableOf(k.Name)+"="+values[k.Name])
		if !strings.HasPrefix(k.Name, "sink.") {
			env = append(env, "CDC_RELAY_SINK__STDOUT={}")
		}
		c, err := Load("", append(env, "PGHOST=/run/postgresql"))
		if err != nil {
			t.Errorf("%s: %v", k.Name, err)
			continue
		}
		shown, err := json.Marshal(c.Entries())
		if err != nil || strings.Contains(string(shown), secret) || !strings.Contains(string(shown), `"key":"`+k.Name+`"`) {
			t.Errorf("%s is shown as %s, %v", k.Name, shown, err)
		}
	}
	if found != len(values) {
		t.Errorf("%d keys have secrets, and %d were tried", found, len(values))
	}
}

// An entry says what its key does, where its value came from, and what would override it.
func TestEntries(t *testing.T) {
	c := mustLoad(t, base+"delivery: {lanes: 3}\n", "CDC_RELAY_LOG__LEVEL=debug")
	got := map[string]Entry{}
	for _, e := range c.Entries() {
		got[e.Key] = e
	}
	want := map[string]Entry{
		"delivery.lanes":      {Value: "3", From: "relay.yaml:3", Variable: "CDC_RELAY_DELIVERY__LANES", Values: "1 to 1024"},
		"log.level":           {Value: "debug", From: "CDC_RELAY_LOG__LEVEL", Variable: "CDC_RELAY_LOG__LEVEL", Values: "`debug`, `info`, `warn` or `error`"},
		"admin.show_payloads": {Value: "true", Default: true, From: "default", Variable: "CDC_RELAY_ADMIN__SHOW_PAYLOADS"},
		"source.password":     {Value: `""`, Default: true, From: "default", Variable: "CDC_RELAY_SOURCE__PASSWORD", Secret: true},
	}
	for key, w := range want {
		e := got[key]
		if e.Does == "" {
			t.Errorf("%s has no description", key)
		}
		w.Key, w.Does, w.More = key, e.Does, e.More
		if e != w {
			t.Errorf("it is %+v, want %+v", e, w)
		}
	}
}
