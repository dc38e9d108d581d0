package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files again")

// base is a configuration without a fault, to which a test adds one.
const base = "source: {url: postgres://relay@localhost:5432/shop}\nsink: {rabbitmq: {}}\n"

// load reads a file with this content. Messages call it relay.yaml.
func load(t *testing.T, content string, env ...string) (*Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("relay.yaml", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load("relay.yaml", env)
}

func rabbitMQ(c *Config) *rabbit.Settings { return c.Sink.Settings.(*rabbit.Settings) }

func mustLoad(t *testing.T, content string, env ...string) *Config {
	t.Helper()
	c, err := load(t, content, env...)
	if err != nil {
		t.Fatal(err)
	}
	if err := schemaTakes(t, content); err != nil && len(env) == 0 {
		t.Errorf("the schema refuses what Load takes: %v", err)
	}
	return c
}

// faultsOf gives one line a fault, and checks that the error is one of exit code 2.
func faultsOf(t *testing.T, err error) []string {
	t.Helper()
	var stop *event.Stop
	if !errors.As(err, &stop) || stop.Code != event.ExitUsage {
		t.Fatalf("got %v, want a Stop of exit code 2", err)
	}
	var faults setting.Faults
	if !errors.As(err, &faults) {
		return []string{err.Error()}
	}
	var lines []string
	for _, f := range faults {
		lines = append(lines, f.Error())
	}
	return lines
}

func TestMinimalIsEnough(t *testing.T) {
	c := mustLoad(t, Minimal)
	if c.Sink.Driver.Name != "rabbitmq" {
		t.Fatalf("sink is %+v, want RabbitMQ alone", c.Sink)
	}
	if got := c.Source.Tables; len(got) != 1 || got[0].String() != "public.outbox" || !reflect.DeepEqual(got[0].Outbox, c.Outbox) {
		t.Errorf("tables are %v, want public.outbox with the outbox section", got)
	}
}

// Messages replace the tables, or are relayed in addition to them; their members are those of the
// outbox section.
func TestMessagesAlone(t *testing.T) {
	const alone = "source: {url: postgres://h/d, tables: [], message_prefix: orders}\nsink: {stdout: {}}\n"
	c := mustLoad(t, alone)
	if len(c.Source.Tables) != 0 || c.Source.MessagePrefix != "orders" {
		t.Errorf("got tables %v and prefix %q", c.Source.Tables, c.Source.MessagePrefix)
	}
	if c := mustLoad(t, strings.Replace(alone, "tables: [], ", "", 1)); len(c.Source.Tables) != 1 || c.Source.MessagePrefix != "orders" {
		t.Errorf("got tables %v and prefix %q, want the default table too", c.Source.Tables, c.Source.MessagePrefix)
	}
	c, err := Load("", []string{"CDC_RELAY_SOURCE__TABLES=", "CDC_RELAY_SOURCE__MESSAGE_PREFIX=orders", "CDC_RELAY_SINK__STDOUT={}", "PGHOST=h"})
	if err != nil || len(c.Source.Tables) != 0 {
		t.Errorf("by variables: %v", err)
	}
	const unmapped = "outbox: {id: \"\", type: \"\"}\n"
	_, err = load(t, strings.Replace(alone, "stdout", "rabbitmq", 1)+unmapped)
	if got := faultsOf(t, err); len(got) != 2 || !strings.HasPrefix(got[0], "relay.yaml:3:14: outbox.id: is empty") ||
		!strings.Contains(got[1], "uses {type}, but no member of messages is mapped to it") {
		t.Errorf("got %q, want that no member is mapped", got)
	}
	_, err = load(t, strings.Replace(alone, "orders", `"\0"`, 1))
	if got := faultsOf(t, err); len(got) != 1 || !strings.Contains(got[0], "source.message_prefix: has a zero character") {
		t.Errorf("got %q, want the prefix refused", got)
	}
}

// A host and a port need no quotes, in any brackets. What has a space behind its
// colon, or quotes before it, is a mapping.
func TestAddressesInFlowStyle(t *testing.T) {
	c, err := load(t, "{source: {url: postgres://h:5432/d, tables: [{name: public.outbox, id: id}]}, admin: {listen: localhost:8464},\n"+
		"sink: {rabbitmq: {url: [amqp://h:5672/v?heartbeat=5, amqp://[::1]:5673/], exchange: y}}}\n")
	if err == nil {
		t.Errorf("a list with [ ] in it is %v, want it in quotes", rabbitMQ(c).URLs)
	}
	c, err = load(t, "{source: {url: postgres://h:5432/d, tables: [{name: public.outbox, id: id}]}, admin: {listen: localhost:8464},\n"+
		"sink: {rabbitmq: {url: [amqp://h:5672/v?heartbeat=5, 'amqp://[::1]:5673/'], exchange: y}}}\n")
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, u := range rabbitMQ(c).URLs {
		url, err := u.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, url)
	}
	if got := fmt.Sprint(urls, c.Source.Tables, c.Admin.Listen); got != "[amqp://h:5672/v?heartbeat=5 amqp://[::1]:5673/] [public.outbox]localhost:8464" {
		t.Errorf("got %s", got)
	}
	for _, item := range []string{"h: 9092", "h :9092", "'h':9092", "h:'9092'", "{h:9092}", "h:[9092]"} {
		_, err := load(t, "source: {url: postgres://h/d}\nsink: {kafka: {brokers: ["+item+"]}}\n")
		if got := faultsOf(t, err); len(got) != 1 || !strings.HasSuffix(got[0], "sink.kafka.brokers: wants a single value, has a mapping") {
			t.Errorf("%s: got %q", item, got)
		}
	}
}

// Without a key in a file or variable there is no configuration: what is said names the file, if
// any, and shows the least one.
func TestNoConfiguration(t *testing.T) {
	_, err := Load("", []string{"PATH=/bin", "CDC_RELAY_CONFIG=", "CDC_RELAY_TEST_POSTGRES=x"})
	if got := faultsOf(t, err)[0]; !strings.HasPrefix(got, "there is no configuration: no file") || !strings.Contains(got, Minimal) {
		t.Errorf("got %q, want the two lines to begin with", got)
	}
	for _, content := range []string{"", "# nothing\n", "---\n", "source:\nsink:\n"} {
		_, err := load(t, content)
		if got := faultsOf(t, err)[0]; !strings.HasPrefix(got, "there is no configuration: relay.yaml sets nothing") || !strings.Contains(got, Minimal) {
			t.Errorf("%q: got %q, want the two lines to begin with", content, got)
		}
	}
	if _, err := load(t, "", "CDC_RELAY_SINK__STDOUT={}", "PGHOST=h"); err != nil {
		t.Errorf("with variables: %v", err)
	}
	_, err = Load("/nonexistent/relay.yaml", nil)
	if got := faultsOf(t, err)[0]; !strings.Contains(got, "/nonexistent/relay.yaml") {
		t.Errorf("got %q, want the file's name", got)
	}
}

// What pgconn ignores or does not know keeps no configuration from being used unless it is a
// demand, and a service file is looked at as the URL is.
func TestSettingsOfLibpq(t *testing.T) {
	for _, env := range []string{
		"PGSSLCRL=", "PGGSSENCMODE=disable", "PGSSLMODE=verify-full", "PGSSLROOTCERT=system", "PGSSLCERT=c", "PGSSLKEY=k", "PGSSLPASSWORD=p", "PGSSLCERTMODE=disable",
		"PGSSLSNI=1", "PGSSLNEGOTIATION=direct", "PGSYSCONFDIR=/etc",
	} {
		if _, err := load(t, base, env); err != nil {
			t.Errorf("%s: %v", env, err)
		}
	}
	file := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(file, []byte("[s]\nhost=h\nsslcrl=/etc/crl.pem\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGSERVICEFILE", file)
	t.Setenv("PGSERVICE", "s")
	_, err := load(t, "sink: {stdout: {}}\n", "PGSERVICE=s")
	if got := faultsOf(t, err); len(got) != 1 || !strings.HasPrefix(got[0], "source.url: cannot be used: sslcrl is not supported") {
		t.Errorf("got %q", got)
	}
}

func TestEnvironmentAloneIsEnough(t *testing.T) {
	c, err := Load("", []string{
		"CDC_RELAY_SOURCE__URL=postgres://relay@db/shop",
		"CDC_RELAY_SOURCE__TABLES=outbox, sales.outbox",
		"CDC_RELAY_SINK__RABBITMQ__URL=amqp://relay:pa,ss@mq/",
		"CDC_RELAY_OUTBOX__KEY=customer_id,client_id",
		"CDC_RELAY_OUTBOX__AGGREGATE=",
		"CDC_RELAY_SINK__RABBITMQ__ROUTING_KEY={type}",
		"CDC_RELAY_OUTBOX__HEADERS=tenant=tenant_id, region=region",
		"CDC_RELAY_DELIVERY__MAX_IN_FLIGHT_BYTES=1048576",
	})
	if err != nil {
		t.Fatal(err)
	}
	url, err := rabbitMQ(c).URLs[0].Read(t.Context())
	if err != nil || url != "amqp://relay:pa,ss@mq/" || len(rabbitMQ(c).URLs) != 1 {
		t.Errorf("urls are %v, %v; a comma in a single url is no separator", rabbitMQ(c).URLs, err)
	}
	if got := fmt.Sprint(c.Source.Tables[0], c.Source.Tables[1]); got != "public.outbox sales.outbox" {
		t.Errorf("tables are %s", got)
	}
	o := c.Source.Tables[1].Outbox
	if fmt.Sprint(o.Key, o.Aggregate, o.Headers) != "{[customer_id client_id] true} {[] true} [{tenant tenant_id} {region region}]" {
		t.Errorf("the mapping of the second table is %+v", o)
	}
	if c.Delivery.MaxInFlightBytes != 1<<20 {
		t.Errorf("max_in_flight_bytes is %d", c.Delivery.MaxInFlightBytes)
	}
}

func TestVariableWinsOverFile(t *testing.T) {
	content := "source: {url: postgres://relay@localhost/shop}\nsink: {rabbitmq: {url: [amqp://a, amqp://b]}}\ndelivery: {lanes: 4, max_in_flight: wrong}\n"
	c := mustLoad(t, content,
		"CDC_RELAY_DELIVERY__LANES=8", "CDC_RELAY_DELIVERY__MAX_IN_FLIGHT=9", "CDC_RELAY_SINK__RABBITMQ__URL=amqp://c")
	if c.Delivery.Lanes != 8 || c.Delivery.MaxInFlight != 9 {
		t.Errorf("delivery is %+v, want the variables' values", c.Delivery)
	}
	if got := fmt.Sprint(rabbitMQ(c).URLs); got != "[amqp://c]" {
		t.Errorf("urls are %s, want the variable's", got)
	}
	c = mustLoad(t, content[:strings.Index(content, "delivery")], "CDC_RELAY_SINK__RABBITMQ__URL=amqp://u:a,b@c/, amqps://u:p@d/")
	if got := rabbitMQ(c).URLs; len(got) != 2 {
		t.Errorf("urls are %v, want two: only a comma before the next address separates", got)
	}
}

func TestStdoutIsChosenByName(t *testing.T) {
	for name, content := range map[string]string{"empty mapping": "sink: {stdout: {}}", "nothing": "sink:\n  stdout:\n"} {
		t.Run(name, func(t *testing.T) {
			c := mustLoad(t, "source: {url: postgres://h/d}\n"+content)
			if c.Sink.Driver.Name != "stdout" {
				t.Errorf("sink is %+v, want stdout alone", c.Sink)
			}
		})
	}
	t.Run("variable", func(t *testing.T) {
		c := mustLoad(t, "source: {url: postgres://h/d}", "CDC_RELAY_SINK__STDOUT={}")
		if c.Sink.Driver.Name != "stdout" {
			t.Error("stdout is not chosen")
		}
	})
}

// A key without a value is one that is not there: the default stays, and an optional column stays
// optional.
func TestKeyWithoutValue(t *testing.T) {
	c := mustLoad(t, base+"outbox: {traceparent: , headers_column: ~}\ndelivery:\n  lanes:\nadmin:\n")
	if c.Delivery.Lanes != 32 || c.Outbox.Traceparent.Written || !c.Outbox.HeadersColumn.Mapped() {
		t.Errorf("got %+v and %+v, want the defaults", c.Delivery, c.Outbox)
	}
}

func TestWrittenColumns(t *testing.T) {
	o := mustLoad(t, base+"outbox: {traceparent: traceparent, headers_column: \"\"}\n").Outbox
	if !o.Traceparent.Written {
		t.Error("traceparent is written, though with its default: the table must have it")
	}
	if o.HeadersColumn.Mapped() || !o.HeadersColumn.Written {
		t.Errorf("headers_column is %+v, want not mapped, by the user", o.HeadersColumn)
	}
	if o.ID.Written {
		t.Error("id is not written")
	}
}

func TestTableOverridesItsOwnColumnsOnly(t *testing.T) {
	c := mustLoad(t, `
source:
  url: postgres://h/d
  tables:
    - {name: a.one, id: event_id, timestamp: [at, created_at]}
    - a.two
outbox: {key: k, headers: {x: y}}
sink: {rabbitmq: }
`)
	one, two := c.Source.Tables[0].Outbox, c.Source.Tables[1].Outbox
	if one.ID.Names[0] != "event_id" || one.Key.Names[0] != "k" || len(one.Timestamp.Names) != 2 || len(one.Headers) != 1 {
		t.Errorf("a.one is %+v", one)
	}
	if !reflect.DeepEqual(two, c.Outbox) || two.ID.Names[0] != "id" {
		t.Errorf("a.two is %+v, want the outbox section", two)
	}
}

func TestScalarsKeepTheirText(t *testing.T) {
	c := mustLoad(t, base+"admin: {tokens: [{name: 07, role: read, value: 0123456789012345}]}\n")
	if got, err := c.Admin.Tokens[0].Read(); err != nil || got != "0123456789012345" || c.Admin.Tokens[0].Name != "07" {
		t.Errorf("token is %q, %v; want it as written, not a number", got, err)
	}
}

func TestSecretIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old\n")
	c := mustLoad(t, "source: {url: postgres://h/d, password: \"${file:"+file+"}\"}\nsink: {stdout: }\n")
	write("new\n")
	if got, err := c.Source.Password.Read(t.Context()); err != nil || got != "new" {
		t.Errorf("password is %q, %v; want the file's present content", got, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Source.Password.Read(t.Context()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

// Whatever has a secret, its file is refused while every user of the host may read it, at the start
// and later. One that has none, such as a topic, is not.
func TestSecretFilesOfOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	mode := func(mode os.FileMode) {
		if err := errors.Join(os.WriteFile(file, []byte("x"), mode), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	const source = "source: {url: host=h}\n"
	const want = "every user of this host may read the file "
	for _, of := range []string{
		"source: {url: 'host=h', password: '${file:FILE}'}\nsink: {stdout: {}}\n",
		"source: {url: 'host=h password=${file:FILE}'}\nsink: {stdout: {}}\n",
		"source: {url: 'host=h sslkey=FILE sslmode=disable'}\nsink: {stdout: {}}\n",
		"source: {url: 'host=h passfile=FILE'}\nsink: {stdout: {}}\n",
		source + "sink: {rabbitmq: {password: '${file:FILE}'}}\n",
		source + "sink: {rabbitmq: {url: 'amqp://u:${file:FILE}@h/'}}\n",
		source + "sink: {kafka: {sasl: {mechanism: plain, username: u, password: '${file:FILE}'}}}\n",
	} {
		of = strings.ReplaceAll(of, "FILE", file)
		mode(0o640)
		c := mustLoad(t, of)
		mode(0o644)
		if _, err := load(t, of); err == nil || !strings.Contains(err.Error(), want+file+": chmod o-rwx "+file) {
			t.Errorf("%s: %v", of, err)
		}
		if c.Source.Password.IsSet() {
			if _, err := c.Source.Password.Read(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: later %v", of, err)
			}
		}
	}
	if _, err := load(t, source+"sink: {kafka: {topic: '${file:"+file+"}'}}\n"); err != nil {
		t.Error(err)
	}
}

func TestCredentials(t *testing.T) {
	if c := mustLoad(t, base+"log:\n", "CDC_RELAY_SINK__RABBITMQ__URL=amqp://u:p@h"); rabbitMQ(c).Logins() != nil {
		t.Error("the default user replaced the one in the address")
	}
	login, err := rabbitMQ(mustLoad(t, base)).Logins().Read(t.Context())
	if want := (sink.Login{User: "guest", Password: "guest"}); login != want || err != nil {
		t.Errorf("got %+v, %v; want guest", login, err)
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, base, "CDC_RELAY_SINK__RABBITMQ__PASSWORD=${file:"+file+"}")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := rabbitMQ(c).Logins().Read(t.Context()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

// Nothing that prints a configuration may show what is secret in it.
func TestSecretsAreNotShown(t *testing.T) {
	content, err := os.ReadFile("testdata/print.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Load("testdata/print.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	if err := c.Print(&printed); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(content, []byte("topsecret")) {
		t.Fatal("the file has no secret to hide")
	}
	for form, shown := range map[string]string{
		"%v": fmt.Sprintf("%v", c.Source), "%+v": fmt.Sprintf("%+v", c.Admin), "%#v": fmt.Sprintf("%#v", *rabbitMQ(c)),
		"JSON": string(asJSON), "Print": printed.String(),
	} {
		if strings.Contains(shown, "topsecret") {
			t.Errorf("%s shows a secret: %s", form, shown)
		}
	}
}

func TestAddressesAreShownWithoutPasswords(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:p@h/d":                     "postgres://u:xxxxx@h/d",
		"postgres://h/d?user=u&pass%77ord=p&a=b": "postgres://h/d?user=u&pass%77ord=xxxxx&a=b",
		"postgres://u:p@h:1,i:2/d?password=p":    "postgres://u:xxxxx@h:1,i:2/d?password=xxxxx",
		"postgres://u:p/@q@h/d":                  "[redacted]",
		"amqp://u@h/":                            "amqp://u@h/",
		"amqp://h?x=@":                           "[redacted]",
		"host=h password=p dbname=d":             "host=h password=xxxxx dbname=d",
		"password = 'p \\' q' host=h":            "password = xxxxx host=h",
		"host=h sslpassword='open":               "host=h sslpassword=xxxxx",
	} {
		if got := setting.ShowAddress("", address); got != want {
			t.Errorf("ShowAddress(%q) = %q, want %q", address, got, want)
		}
	}
}

// What was given is printed as the golden file has it, with where it came from.
func TestPrint(t *testing.T) {
	c, err := Load("testdata/print.yaml", []string{"CDC_RELAY_DELIVERY__ORDERING=commit", "CDC_RELAY_SOURCE__SLOT=a_slot"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`(?m)^.*  # default\n`).ReplaceAllString(out.String(), "")
	const golden = "testdata/print.golden"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || got != string(want) {
		t.Errorf("print gives\n%s\nwant\n%s (%v)", got, want, err)
	}
}

// What was not given is printed with its default, which docs/configuration.md has, too: each key
// once, except those of other sinks.
func TestPrintHasEveryKey(t *testing.T) {
	c, err := Load("", []string{"CDC_RELAY_SINK__STDOUT={}", "PGHOST=/run/postgresql"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	var got, want, section []string
	for line := range strings.Lines(out.String()) {
		name := strings.TrimLeft(line, " ")
		depth := (len(line) - len(name)) / 2
		name, value, _ := strings.Cut(strings.TrimSuffix(name, "\n"), ":")
		if section = append(section[:depth:depth], name); value != "" {
			got = append(got, strings.Join(section, ".")+":"+value)
		}
	}
	p := newPage()
	for _, k := range p.loader.fields() {
		switch {
		case k.Name == "sink.stdout":
			want = append(want, "sink.stdout: {}  # CDC_RELAY_SINK__STDOUT")
		case !strings.HasPrefix(k.Name, "sink.") || strings.HasPrefix(k.Name, "sink.compat.") || k.Name == "sink.cloudevents.mode":
			want = append(want, strings.TrimRight(k.Name+": "+k.Show(), " ")+"  # default")
		}
	}
	if !slices.Equal(got, want) || len(got) < 50 {
		t.Errorf("print has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What print writes is a configuration that means the same, without the secrets, and without what
// Load would refuse together with it.
func TestPrintedLoadsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		without []string
	}{
		"user in the address": {"sink: {rabbitmq: {url: amqp://u:topsecret@h}}", []string{"guest"}},
		"texts to quote":      {"sink: {rabbitmq: {url: amqp://u@mq/, exchange: '$$true #{aggregate}'}}\noutbox: {key: ['a b', '\"c\"']}", nil},
		"empty names":         {"sink: {rabbitmq: {url: amqp://u@mq/, exchange: '', allow: {exchange: ['', dead], routing_key: ['', 'order.*']}}}\ndead_letters: {mirror: {exchange: dead}}", nil},
		"queues and exchanges": {
			"sink: {rabbitmq: {url: amqp://u@mq/, declare: true, exchange_type: headers, unroutable: {'x-*': ignore, '*': pause}, bindings: [{queue: a}, {queue: b c, key: '', arguments: {x-match: any, $$n: 5}}]}}",
			nil,
		},
		"kafka": {"sink: {kafka: {}}", []string{"lanes", "rabbitmq"}},
		"login of kafka": {
			"sink: {kafka: {brokers: [a, '[::1]'], topic: events, tls: {enabled: true, ca: /c}, sasl: {mechanism: plain, username: topsecret, password: topsecret}}}",
			[]string{"lanes", "rabbitmq"},
		},
		"profile": {
			`sink: {rabbitmq: {url: amqp://u@mq/}, compat: {profile: debezium-server, options: {route.topic.regex: "(?<kind>[a-z]+)-.*", route.topic.replacement: "a.$${kind}", sink.rabbitmq.null.value: "no value: none"}}}`,
			[]string{"outbox:", "routing_key: \"{", "message_prefix", "declare", "subject"},
		},
		"CloudEvents": {
			`sink: {rabbitmq: {url: amqp://u@mq/}, cloudevents: {mode: structured, type: "com.example.{type}", extensions: {tenant: tenant}}}`, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := printed(t, mustLoad(t, "source: {url: postgres://h/d}\n"+c.content+"\n"))
			for _, hidden := range append(c.without, "topsecret") {
				if strings.Contains(text, hidden) {
					t.Errorf("%q is printed:\n%s", hidden, text)
				}
			}
			if again := printed(t, mustLoad(t, text)); again != text {
				t.Errorf("printed\n%s\nand loaded again\n%s", text, again)
			}
		})
	}
}

func TestSizesAndDurations(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "512": 512, "512B": 512, "1 KiB": 1024, "16MiB": 16 << 20, "2GiB": 2 << 30, "3MB": 3e6, "4kB": 4000} {
		if got, ok := setting.ParseSize(text); !ok || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "16M", "9999999999GiB", "1MiBs"} {
		if got, ok := setting.ParseSize(text); ok {
			t.Errorf("ParseSize(%q) = %d, want a fault", text, got)
		}
	}
	for d, want := range map[time.Duration]string{time.Hour: "1h", 90 * time.Minute: "1h30m", 20 * time.Second: "20s", 100 * time.Millisecond: "100ms", 10 * time.Minute: "10m", 61 * time.Minute: "1h1m"} {
		if got := setting.ShowDuration(d); got != want {
			t.Errorf("setting.ShowDuration(%d) = %s, want %s", d, got, want)
		}
	}
}

// The examples are valid, also to an editor.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 9 {
		t.Fatalf("found examples %v, %v; want at least nine", files, err)
	}
	for _, file := range append(files, "testdata/print.yaml") {
		if _, err := Load(file, []string{"CONFLUENT_API_KEY=k", "CONFLUENT_API_SECRET=s", "RELAY_KAFKA_PASSWORD=p"}); err != nil {
			t.Errorf("%v", err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := schemaTakes(t, string(content)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// A variable with one underscore in the place of two is named: with a good configuration as a
// warning, with a bad one among its faults.
func TestAlmostOverrides(t *testing.T) {
	environ := []string{"CDC_RELAY_SINK_RABBITMQ_PASSWORD=x", "CDC_RELAY_CONFIG=relay.yaml", "CDC_RELAY_OTHER=1", "CDC_RELAY_SOURCE__URL=postgres://h/shop"}
	c, err := Load("", append(environ, "CDC_RELAY_SINK__STDOUT={}"))
	const want = "CDC_RELAY_SINK_RABBITMQ_PASSWORD: is not read; the variable of this key is CDC_RELAY_SINK__RABBITMQ__PASSWORD"
	if err != nil || !slices.Equal(c.NotRead, []string{want}) {
		t.Errorf("%v, %v", c, err)
	}
	if _, err := Load("", environ); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without a sink: %v", err)
	}
	if _, err := Load("", []string{"CDC_RELAY_SOURCE_URL=x"}); err == nil || !strings.Contains(err.Error(), "CDC_RELAY_SOURCE__URL") {
		t.Errorf("without any key: %v", err)
	}
}
