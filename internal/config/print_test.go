package config

import (
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
	credentials, source := rabbitMQ(c).Credentials(), c.Source.Password.Read // as they are kept
	again := mustLoad(t, `source: {url: "postgres://relay@h/d", password: new}
sink: {rabbitmq: {url: "amqps://h/", username: other, password: new}}
`)
	if renewed, restarts := c.Renew(again); len(renewed) != 3 || restarts != nil {
		t.Fatalf("renewed %q, need a restart %q", renewed, restarts)
	}
	if value, err := source(); value != "new" || err != nil {
		t.Errorf("PostgreSQL's is %q, %v", value, err)
	}
	if user, password, err := credentials(); user != "other" || password != "new" || err != nil {
		t.Errorf("RabbitMQ's are %q, %q, %v", user, password, err)
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
