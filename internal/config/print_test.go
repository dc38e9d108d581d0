package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const renewable = `source: {url: "postgres://relay@h/d", password: old}
sink: {rabbitmq: {url: "amqps://h/", username: relay, password: old}}
`

// A running relay takes over the level and passwords, for those who got hold of them before; all
// else that differs is named, what only the text hides too.
func TestRenew(t *testing.T) {
	for _, c := range []struct {
		name, was, is     string
		renewed, restarts []string
	}{
		{"nothing", renewable, renewable, nil, nil},
		{"the level", renewable, renewable + "log: {level: debug}\n", []string{"log.level"}, nil},
		{
			"other keys", renewable, renewable + "log: {format: console}\ndelivery: {lanes: 3}\noutbox: {headers: {tenant: tenant}}\n", nil,
			[]string{"outbox.headers", "delivery.lanes", "log.format"},
		},
		{
			"a password in an address", "source: {url: \"postgres://relay:old@h/d\"}\nsink: {rabbitmq: {url: \"amqp://u:old@h/\"}}\n",
			"source: {url: \"postgres://relay:new@h/d\"}\nsink: {rabbitmq: {url: \"amqp://u:new@h/\"}}\n", nil,
			[]string{"source.url", "sink.rabbitmq.url"},
		},
		{"a password that was not there", "source: {url: \"postgres://relay@h/d\"}\nsink: {rabbitmq: {url: \"amqps://h/\", username: relay, password: old}}\n", renewable, nil, []string{"source.password"}},
		{"another sink", renewable, "source: {url: \"postgres://relay@h/d\", password: old}\nsink: {kafka: {}}\n", nil, []string{"sink"}},
		{"another column", renewable + "outbox: {key: a}\n", renewable + "outbox: {key: b}\n", nil, []string{"outbox.key"}},
	} {
		renewed, restarts := mustLoad(t, c.was).Renew(mustLoad(t, c.is))
		if !slices.Equal(renewed, c.renewed) || !slices.Equal(restarts, c.restarts) {
			t.Errorf("%s: renewed %q, want %q; need a restart %q, want %q", c.name, renewed, c.renewed, restarts, c.restarts)
		}
	}
}

func TestRenewedPasswordIsUsed(t *testing.T) {
	c := mustLoad(t, renewable)
	logins, source := rabbitMQ(c).Logins(), c.Source.Password.Read // as they are kept
	again := mustLoad(t, `source: {url: "postgres://relay@h/d", password: new}
sink: {rabbitmq: {url: "amqps://h/", username: other, password: new}}
`)
	if renewed, restarts := c.Renew(again); len(renewed) != 3 || restarts != nil {
		t.Fatalf("renewed %q, need a restart %q", renewed, restarts)
	}
	if value, err := source(t.Context()); value != "new" || err != nil {
		t.Errorf("PostgreSQL's is %q, %v", value, err)
	}
	if login, err := logins.Read(t.Context()); login.User != "other" || login.Password != "new" || err != nil {
		t.Errorf("RabbitMQ's is %+v, %v", login, err)
	}
	if renewed, restarts := c.Renew(again); renewed != nil || restarts != nil {
		t.Errorf("the second time it renews %q, and %q need a restart", renewed, restarts)
	}
}

// Tokens are renewed by name, in whatever order, for who reads them already. Other names or roles
// need a restart, and change none of the values.
func TestRenewTokens(t *testing.T) {
	const relay = "source: {url: \"postgres://h/d\"}\nsink: {stdout: {}}\nadmin: {tokens: ["
	const a, b = "{name: a, role: read, value: a-old-a-old-a-old-}", "{name: b, role: operate, value: b-old-b-old-b-old-}"
	for again, want := range map[string]string{
		strings.ReplaceAll(b+", "+a, "old", "new"):                                                  "a-new-a-new-a-new- b-new-b-new-b-new- [admin.tokens] []",
		strings.Replace(a+", "+b, "b-old", "b-new", 1):                                              "a-old-a-old-a-old- b-new-b-old-b-old- [admin.tokens] []",
		strings.ReplaceAll(a, "old", "new"):                                                         "a-old-a-old-a-old- b-old-b-old-b-old- [] [admin.tokens]",
		strings.ReplaceAll(a+", "+b, "read, value: a-old", "operate, value: a-new"):                 "a-old-a-old-a-old- b-old-b-old-b-old- [] [admin.tokens]",
		strings.ReplaceAll(a+", "+b+", "+strings.Replace(a, "name: a", "name: c", 1), "old", "new"): "a-old-a-old-a-old- b-old-b-old-b-old- [] [admin.tokens]",
		strings.ReplaceAll(a+", "+b, "name: b", "name: c"):                                          "a-old-a-old-a-old- b-old-b-old-b-old- [] [admin.tokens]",
	} {
		c := mustLoad(t, relay+a+", "+b+"]}\n")
		kept := []Token{c.Admin.Tokens[0], c.Admin.Tokens[1]}
		renewed, restarts := c.Renew(mustLoad(t, relay+again+"]}\n"))
		first, err := kept[0].Read()
		second, err2 := kept[1].Read()
		if got := fmt.Sprint(first, " ", second, " ", renewed, " ", restarts); got != want || err != nil || err2 != nil {
			t.Errorf("%s: %s, %v, %v; want %s", again, got, err, err2, want)
		}
	}
}

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
