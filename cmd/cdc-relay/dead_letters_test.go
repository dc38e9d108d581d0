package main

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Everything that is wrong with a line is exit 2 and one message, before a server is asked: nobody
// listens at its address.
func TestUsageOfAConfiguredRelay(t *testing.T) {
	emptyDirectory(t)
	writeFile(t, "cdc-relay.yaml", "source: {url: postgres://nobody@127.0.0.1:1/nowhere}\nsink: {stdout: {}}\n")
	for line, words := range map[string][]string{
		"dead-letters":                            {"wants one of", "replay"},
		"dead-letters nonsense":                   {"not nonsense"},
		"dead-letters list more":                  {"takes no argument", "more"},
		"dead-letters list --limit 0":             {"--limit is 0, want 1 to 1000"},
		"dead-letters list --limit many":          {"--limit is \"many\"; want a whole number"},
		"dead-letters list --class fatal":         {"--class is \"fatal\"", "destination, transient, permanent"},
		"dead-letters list --class=":              {"--class is empty"},
		"dead-letters list --state dead":          {"--state is \"dead\"", "open, replaying"},
		"dead-letters list --from yesterday":      {"--from is \"yesterday\"", "2026-11-20"},
		"dead-letters list --from -5m":            {"--from"},
		"dead-letters list --from 1h --to 2h":     {"--to is", "not after from"},
		"dead-letters list --key a --key-of 1":    {"--key-of excludes key"},
		"dead-letters show":                       {"wants the number of one row"},
		"dead-letters show x":                     {`"x" is not the number of a row`, "`cdc-relay dead-letters list`"},
		"dead-letters show 0":                     {`"0" is not the number of a row`},
		"deferred list --state open":              {"unknown flag: --state"},
		"dead-letters replay":                     {"no rows named", "--all"},
		"dead-letters replay --class permanent":   {"--class is a filter: add --all"},
		"dead-letters replay 1 --all":             {"numbers and --all exclude each other"},
		"dead-letters replay 1 --key k1":          {"numbers and --key exclude"},
		"dead-letters replay 1 --id e-1":          {"numbers and --id exclude"},
		"dead-letters replay --id e-1 --rate 5/s": {"--rate needs --all"},
		"dead-letters replay x":                   {`"x" is not the number of a row`},
		"dead-letters replay 1 --rate 5/s":        {"--rate needs --all"},
		"dead-letters replay --all --rate 0/s":    {"--rate is \"0/s\""},
		"dead-letters replay --all --rate 5/m":    {"--rate is \"5/m\"", "50/s"},
		"dead-letters replay --all --rate=":       {"--rate is \"\""},
		"dead-letters replay 1 --wait -1s":        {"--wait is -1s"},
		"dead-letters replay 1 --wait soon":       {"--wait is \"soon\"; want a time such as 30s"},
		"dead-letters replay 1 --exchange x":      {"--exchange and --routing-key are for RabbitMQ"},
		"dead-letters replay 1 --topic x":         {"--topic is for Kafka"},
		"dead-letters discard 1 --exchange x":     {"unknown flag: --exchange"},
		"dead-letters purge --class permanent":    {"add --all"},
		"dead-letters job --cancel":               {"no job named"},
		"dead-letters request":                    {"wants the number of one request"},
		"dead-letters request x":                  {`"x" is not the number of a request`},
		"dead-letters job 1 2":                    {"wants the number of one job, or none"},
		"deferred retry --all --destination=":     {"--destination is empty"},
		"deferred dead-letter":                    {"no rows named"},
		"events show":                             {"wants the id of one event"},
		"compare debezium --theirs a --ours b":    {"name the broker"},
		"events":                                  {"wants one of show"},
	} {
		code, stdout, stderr := commandLine(t, strings.Fields(line)...)
		if code != event.ExitUsage || stdout != "" || strings.Count(stderr, "cdc-relay: ") != 1 {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", line, code, stdout, stderr)
		}
		for _, want := range words {
			if !strings.Contains(strings.Join(strings.Fields(stderr), " "), want) {
				t.Errorf("%s: no %q in %s", line, want, stderr)
			}
		}
	}
}

// Values that are known are offered, files only for -c.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"dead-letters list --class ":   "destination\ntransient\npermanent\n:4\n",
		"dead-letters replay --state ": "open\nreplaying\nreplayed\ndiscarded\npurged\n:4\n",
		"deferred retry --class ":      "destination\ntransient\npermanent\n:4\n",
		"dead-letters show ":           ":4\n",
		"dead-letters job ":            ":4\n",
		"dead-letters list --key ":     ":4\n",
		"status ":                      ":4\n",
		"status -c ":                   "yaml\nyml\n:8\n", // files with these endings
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		if code, stdout, _ := commandLine(t, args...); code != 0 || !strings.HasPrefix(stdout, want) {
			t.Errorf("%s is completed with %q, want %q", line, stdout, want)
		}
	}
}
