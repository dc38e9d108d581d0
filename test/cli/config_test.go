package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

const (
	goodSource = "source: {url: postgres://nobody:pgsecret@127.0.0.1:1/nowhere}\n"
	goodSink   = "sink: {rabbitmq: {url: amqp://nobody:mqsecret@127.0.0.1:1/}}\n"
)

// What is wrong with a configuration is said before anything is connected: by run as by config
// validate, with exit 2 and the place. No fault shows a secret.
func TestConfigurationThatIsRefused(t *testing.T) {
	t.Parallel()
	binary := runner.Build(t)
	for i, c := range []struct {
		name, config string
		words        []string
	}{
		{"unknown key", goodSource + goodSink + "delivery:\n  ordring: 5\n", []string{"cdc-relay.yaml:4:3", "delivery.ordring", "nearest", "delivery.ordering"}},
		{"unknown section", goodSource + goodSink + "delivry: {max_in_flight: 5}\n", []string{"cdc-relay.yaml:3:1", "delivry", "delivery"}},
		{"two sinks", goodSource + "sink:\n  rabbitmq: {url: amqp://localhost/}\n  stdout: {}\n", []string{"cdc-relay.yaml:4:3", "rabbitmq and stdout", "exactly one of rabbitmq, kafka, stdout"}},
		{"unknown sink", goodSource + "sink: {webhook: {url: 'http://h'}}\n", []string{"cdc-relay.yaml:2:8: sink.webhook", "exactly one of rabbitmq, kafka, stdout"}},
		{"a version", "version: 1\n" + goodSource + goodSink, []string{"cdc-relay.yaml:1:1: version: unknown key", "known here are source, outbox, sink"}},
		{"another database", "source: {url: 'mysql://u:pgsecret@h/d'}\n" + goodSink, []string{"source.url", "only PostgreSQL is supported"}},
		{"a tab", "source:\n\turl: postgres://h/d\n" + goodSink, []string{"cdc-relay.yaml:2:1", "a tab is not allowed here"}},
		{"no id", goodSource + goodSink + "outbox: {id: ''}\n", []string{"cdc-relay.yaml:3:14: outbox.id", "every event needs an id"}},
		{"no sink", goodSource, []string{"sink", "none is configured", "exactly one of rabbitmq, kafka, stdout"}},
		{"two brokers", goodSource + "sink:\n  kafka: {brokers: [h]}\n  rabbitmq: {url: amqp://h/}\n", []string{"cdc-relay.yaml:4:3", "kafka and rabbitmq", "exactly one of rabbitmq, kafka, stdout"}},
		{"compression", goodSource + "sink: {kafka: {compression: brotli}}\n", []string{"cdc-relay.yaml:2:29: sink.kafka.compression", "brotli", "none, gzip, snappy, lz4, zstd"}},
		{"no Kafka broker", goodSource + "sink: {kafka: {brokers: []}}\n", []string{"cdc-relay.yaml:2:25: sink.kafka.brokers", "names no broker"}},
		{"Kafka broker with a scheme", goodSource + "sink: {kafka: {brokers: ['SASL_SSL://h:9092']}}\n", []string{"sink.kafka.brokers", "want host or host:port without a scheme"}},
		{"Kafka login without a mechanism", goodSource + "sink: {kafka: {sasl: {password: mqsecret}}}\n", []string{"sink.kafka.sasl.password", "no effect without sasl.mechanism"}},
		{"Kafka certificate without TLS", goodSource + "sink: {kafka: {tls: {cert: /c.pem}}}\n", []string{"sink.kafka.tls.cert", "no effect without tls.enabled: true"}},
		{"topic template", goodSource + "sink: {kafka: {topic: 'a/{type}'}}\n", []string{"cdc-relay.yaml:2:23: sink.kafka.topic", "a/{type}", "letters, digits"}},
		{"lanes of Kafka", goodSource + "sink: {kafka: {}}\ndelivery: {lanes: 4}\n", []string{"cdc-relay.yaml:3:19: delivery.lanes", "each partition of a topic is a lane"}},
		{"a header of Kafka's", goodSource + "sink: {kafka: {}}\noutbox: {headers: {eventType: t}}\n", []string{"outbox.headers.eventType", "choose another name"}},
		{"PostgreSQL URL", "source: {url: 'postgres://u:pgse%zzcret@h:5432/d'}\n" + goodSink, []string{"source.url", "cannot be parsed", "%2F"}},
		{"PostgreSQL URL with a slash in the password", "source: {url: 'postgres://u:pgse/cret@h:5432/d'}\n" + goodSink, []string{"source.url", "cannot be used: invalid port"}},
		{"broker URL", goodSource + "sink: {rabbitmq: {url: 'amqp://u:mqse cret@h:port/'}}\n", []string{"sink.rabbitmq.url", "cannot be parsed as amqp://"}},
		{"broker scheme", goodSource + "sink: {rabbitmq: {url: 'http://u:mqsecret@h/'}}\n", []string{"sink.rabbitmq.url", "want amqp:// or amqps://"}},
		{"no source", goodSink, []string{"source.url", "is not set"}},
		{"value", goodSource + goodSink + "delivery: {ordering: sorted}\n", []string{"delivery.ordering", "sorted", "key, pipelined, commit, none"}},
		{"unit", goodSource + goodSink + "delivery: {confirm_timeout: 30}\n", []string{"delivery.confirm_timeout", "unit"}},
		{"reserved header", goodSource + goodSink + "outbox: {headers: {cdc_position: tenant}}\n", []string{"outbox.headers.cdc_position", "choose another name"}},
		{"retry header", goodSource + goodSink + "outbox: {headers: {x-retry-count: tries}}\n", []string{"outbox.headers.x-retry-count", "choose another name"}},
		{"admin for all", goodSource + goodSink + "admin: {listen: '0.0.0.0:9464'}\n", []string{"admin.listen", "admin.token"}},
		{"exchange template", goodSource + "sink: {rabbitmq: {exchange: 'a{b'}}\n", []string{"cdc-relay.yaml:2:29: sink.rabbitmq.exchange", `"a{b"`, "a { without its }", "allowed are {aggregate}"}},
		{"routing key template", goodSource + "sink: {rabbitmq: {routing_key: '{aggregat}'}}\n", []string{"cdc-relay.yaml:2:32: sink.rabbitmq.routing_key", "{aggregat}", "allowed are {aggregate}"}},
		{"template of a part that is not mapped", goodSource + goodSink + "outbox: {aggregate: ''}\n", []string{"cdc-relay.yaml:3:21: sink.rabbitmq.routing_key", "{aggregate}.{type}", "uses {aggregate}", "public.outbox", "map one in the outbox section"}},
		{"headers for nobody", goodSource + "sink: {stdout: {}}\noutbox: {headers: {tenant: tenant}}\n", []string{"cdc-relay.yaml:3:19: outbox.headers", "no effect with sink.stdout"}},
		{"declare of a template", goodSource + "sink: {rabbitmq: {exchange: 'events.{aggregate}', declare: true}}\n", []string{"cdc-relay.yaml:2:60: sink.rabbitmq.declare", "events.{aggregate}", "each event names"}},
		{"declare of the default exchange", goodSource + "sink: {rabbitmq: {exchange: '', declare: true}}\n", []string{"sink.rabbitmq.declare", "default exchange"}},
		{"parameter of the broker's URL", goodSource + "sink: {rabbitmq: {url: 'amqp://u:mqsecret@h/?heartbeat=soon'}}\n", []string{"sink.rabbitmq.url", "parameter"}},
		{"secret that is not there", "source: {url: postgres://h/d, password: '${file:/nonexistent/pw}'}\n" + goodSink, []string{"source.password", "/nonexistent/pw"}},
	} {
		commands := []string{"config validate"}
		if i < 3 { // all commands read it in the same way
			commands = append(commands, "run")
		}
		for _, command := range commands {
			t.Run(c.name+"/"+command, func(t *testing.T) {
				res, err := runner.RunCommand(await.Context(t), binary, c.config, strings.Fields(command)...)
				must(t, err)
				line := refusal(t, res, 2, c.words...)
				if res.Stdout != "" || !strings.HasPrefix(line, "cdc-relay: the configuration cannot be used: ") {
					t.Errorf("stdout %q, stderr %q", res.Stdout, line)
				}
				hidden(t, res.Stderr)
			})
		}
	}
}

// The least configuration of each sink is valid, its address written without quotes.
func TestLeastConfigurations(t *testing.T) {
	t.Parallel()
	for _, sink := range []string{"{rabbitmq: {url: amqp://localhost:5672/}}", "{kafka: {brokers: [localhost:9092]}}", "{stdout: {}}"} {
		res, err := runner.RunCommand(await.Context(t), runner.Build(t), "source: {url: postgres://localhost:5432/shop}\nsink: "+sink+"\n", "config", "validate")
		must(t, err)
		if res.Code != 0 {
			t.Errorf("%s: exit %d, %s", sink, res.Code, res.Stderr)
		}
	}
}

// hidden fails when text holds one of the secrets of these tests, whole or the part that a parser
// would quote.
func hidden(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{"pgsecret", "mqsecret", "pgse", "mqse", "toksecret"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is shown: %s", secret, text)
		}
	}
}

// A column of a template that the table lacks is found before the broker is asked.
func TestTemplateOfAMissingColumn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sink = "  rabbitmq: {url: 'amqp://127.0.0.1:1/', routing_key: '{column:region}'}"
	r.refused(4, "run", "public.outbox", `no column "region"`, "columns there: id, aggregatetype")
}

// All faults are told at once, each with its place, whatever they are faults of.
func TestEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	for config, words := range map[string][]string{
		"source: {slot: NO}\ndelivery: {max_in_flight: 0}\nsink: {kafka: {brokers: ['h:x'], compression: 9, topic: 'a b', tls: {}}}\n": {
			"7 faults", "1:16: source.slot", "2:27: delivery.max_in_flight", "3:26: sink.kafka.brokers", "3:47: sink.kafka.compression",
			"3:57: sink.kafka.topic", "3:69: sink.kafka.tls", "source.url",
		},
		goodSource + "sink: {rabbitmq: {exchange: 'a{b', declare: yes}}\noutbox: {type: ''}\ndelivery: {lanes: 0}\n": {
			"4 faults", "2:29: sink.rabbitmq.exchange", "2:45: sink.rabbitmq.declare", "3:16: sink.rabbitmq.routing_key", "uses {type}", "4:19: delivery.lanes",
		},
		goodSource + "sink:\n  rabbitmq: {exchange: '{key}', declare: true}\noutbox: {key: '', aggregate: ''}\n": {
			"3 faults", "3:24: sink.rabbitmq.exchange", "uses {key}", "3:42: sink.rabbitmq.declare", "4:30: sink.rabbitmq.routing_key", "uses {aggregate}",
		},
	} {
		for _, command := range []string{"run", "config validate"} {
			res, err := runner.RunCommand(await.Context(t), runner.Build(t), config, strings.Fields(command)...)
			must(t, err)
			for _, word := range words {
				if res.Code != 2 || !strings.Contains(res.Stderr, word) {
					t.Errorf("%s: exit %d, no %q in %s", command, res.Code, word, res.Stderr)
				}
			}
		}
	}
}

// What config print shows is a configuration that means the same, without the secrets.
func TestConfigPrint(t *testing.T) {
	t.Parallel()
	binary := runner.Build(t)
	secret := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(secret, []byte("toksecret\n"), 0o600))
	config := goodSource + "sink: {rabbitmq: {url: amqp://127.0.0.1:1/, username: nobody, password: mqsecret}}\n" +
		fmt.Sprintf("admin: {token: '${file:%s}'}\ndelivery: {max_in_flight: 77}\n", secret)
	res, err := runner.RunCommand(await.Context(t), binary, config, "config", "print")
	must(t, err)
	if res.Code != 0 || !strings.Contains(res.Stdout, "max_in_flight: 77 ") || !strings.Contains(res.Stdout, "ordering: key  # default") || !strings.Contains(res.Stdout, secret) {
		t.Errorf("exit %d: %s%s", res.Code, res.Stdout, res.Stderr)
	}
	hidden(t, res.Stdout+res.Stderr)
	again, err := runner.RunCommand(await.Context(t), binary, strings.ReplaceAll(res.Stdout, ":xxxxx@", ":other@"), "config", "validate")
	must(t, err)
	if again.Code != 0 || again.Stdout != "the configuration is valid\n" {
		t.Errorf("what it printed is not valid: %s", again.Stderr)
	}
}

// config schema needs no configuration, and says of itself which draft it is.
func TestConfigSchema(t *testing.T) {
	t.Parallel()
	res, err := runner.RunCommand(await.Context(t), runner.Build(t), "not: [a, configuration", "config", "schema")
	must(t, err)
	var schema struct {
		Draft      string `json:"$schema"`
		Properties map[string]any
	}
	must(t, json.Unmarshal([]byte(res.Stdout), &schema))
	if res.Code != 0 || schema.Draft != "https://json-schema.org/draft/2020-12/schema" || schema.Properties["sink"] == nil {
		t.Errorf("exit %d: %s%s", res.Code, res.Stdout, res.Stderr)
	}
}

// Misspelt commands, flags and arguments are exit 2; those that ask for help are not.
func TestUsage(t *testing.T) {
	t.Parallel()
	binary := runner.Build(t)
	run := func(line string) runner.Result {
		res, err := runner.RunCommand(await.Context(t), binary, "", strings.Fields(line)...)
		must(t, err)
		return res
	}
	for line, words := range map[string][]string{
		"nonsense":                       {"unknown command", "nonsense"},
		"run --nonsense":                 {"unknown flag", "--nonsense"},
		"run more":                       {"takes no argument", "more"},
		"run cdc-relay.yaml":             {"-c cdc-relay.yaml"},
		"replay abc":                     {"`cdc-relay dead-letters replay`"},
		"events show":                    {"wants the id of one event", "`cdc-relay events show 6f1c"},
		"config nonsense":                {"validate", "nonsense"},
		"teardown":                       {"--yes"},
		"run -c /nonexistent/relay.yaml": {"/nonexistent/relay.yaml"},
		"run":                            {"there is no configuration"},
	} {
		refusal(t, run(line), 2, words...)
	}
	for _, line := range []string{"version", "--version", "-v"} {
		if res := run(line); res.Code != 0 || !strings.HasPrefix(res.Stdout, "cdc-relay ") || strings.Count(res.Stdout, "\n") != 1 {
			t.Errorf("%s: exit %d, %q%s", line, res.Code, res.Stdout, res.Stderr)
		}
	}
	if res := run("completion bash"); res.Code != 0 || !strings.Contains(res.Stdout, "cdc-relay") {
		t.Errorf("completion: exit %d, %q", res.Code, res.Stderr)
	}
	help := run("--help")
	for _, name := range []string{"run", "init", "check", "status", "teardown", "config", "version", "completion"} {
		if help.Code != 0 || !strings.Contains(help.Stdout, "\n  "+name+" ") {
			t.Errorf("--help (exit %d) does not name %s", help.Code, name)
		}
		if res := run(name + " --help"); res.Code != 0 || !strings.Contains(res.Stdout, "Usage:") {
			t.Errorf("%s --help: exit %d, %q", name, res.Code, res.Stderr)
		}
	}
}
