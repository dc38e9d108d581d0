package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// commandLine runs one command line in an empty directory without our variables.
func commandLine(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(args, &out, &errs)
	return code, out.String(), errs.String()
}

// emptyDirectory moves to an empty directory and removes the configuration's environment variables.
func emptyDirectory(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "CDC_RELAY_") {
			t.Setenv(name, "")
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestUsageErrors(t *testing.T) {
	emptyDirectory(t)
	for line, want := range map[string]string{
		"nonsense":                             "unknown command \"nonsense\"; `cdc-relay --help` lists the commands",
		"chek":                                 "unknown command \"chek\"; there is `cdc-relay check`",
		"dead-letter list":                     "unknown command \"dead-letter\"; there is `cdc-relay dead-letters`",
		"replay 17":                            "unknown command \"replay\"; there is `cdc-relay dead-letters replay`",
		"show 17":                              "there is `cdc-relay dead-letters show`, `cdc-relay deferred show`, `cdc-relay events show`",
		"run --confg x":                        "unknown flag: --confg; `cdc-relay run --help` lists the flags",
		"version -x":                           "unknown flag: -x; `cdc-relay version --help` lists the flags",
		"version more":                         "`cdc-relay version` takes no argument, has \"more\"",
		"run relay.yaml":                       "has \"relay.yaml\"; name the configuration file with -c relay.yaml",
		"init --url mysql://u:secret@h/d":      "--url begins with mysql://, and only PostgreSQL is supported",
		"-c":                                   "--config needs a value",
		"dlq list --limit=":                    "--limit is \"\"; want a whole number",
		"dlq list --json=5":                    "--json is \"5\"; want true or false",
		"dlq replay 1 --wait soon":             "--wait is \"soon\"; want a time such as 30s",
		"check --column a":                     "--column is \"a\"; want NAME=VALUE",
		"events show":                          "`cdc-relay events show` wants the id of one event, such as `cdc-relay events show 6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10`",
		"events show a b":                      "wants the id of one event",
		"deferred show":                        "`cdc-relay deferred show` wants the number of one row, such as `cdc-relay deferred show 17`",
		"deferred show abc":                    "\"abc\" is not the number of a row; want one that `cdc-relay deferred list` shows, such as 17",
		"dlq job 1 2":                          "`cdc-relay dead-letters job` wants the number of one job, or none",
		"dlq request abc":                      "\"abc\" is not the number of a request; want one that `cdc-relay dead-letters show` shows",
		"compare debezium --theirs a --ours b": "there is no configuration",
		"config":                               "`cdc-relay config` wants one of print, schema, validate",
		"config nonsense":                      "not nonsense",
		"config validate":                      "there is no configuration",
		"config print -c /nonexistent.yaml":    "/nonexistent.yaml: no such file",
	} {
		code, stdout, stderr := commandLine(t, strings.Fields(line)...)
		said := strings.Join(strings.Fields(stderr), " ")
		if code != event.ExitUsage || !strings.HasPrefix(said, "cdc-relay: ") || !strings.Contains(said, want) || stdout != "" {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want exit 2 and %q", line, code, stdout, stderr, want)
		}
	}
}

func TestWhichConfigurationIsRead(t *testing.T) {
	emptyDirectory(t)
	slot := func(name string) string {
		return "source: {url: postgres://h/d, slot: " + name + "}\nsink: {stdout: {}}\n"
	}
	printed := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := commandLine(t, append([]string{"config", "print"}, args...)...)
		if code != 0 {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		_, after, _ := strings.Cut(stdout, "slot: ")
		name, _, _ := strings.Cut(after, " ")
		return name
	}
	t.Setenv("CDC_RELAY_SOURCE__URL", "postgres://h/d")
	t.Setenv("CDC_RELAY_SINK__STDOUT", "{}")
	if got := printed(); got != "cdc_relay" {
		t.Errorf("without a file the slot is %s", got)
	}
	t.Setenv("CDC_RELAY_SINK__STDOUT", "{}")
	writeFile(t, "cdc-relay.yaml", slot("here"))
	if got := printed(); got != "here" {
		t.Errorf("next to ./cdc-relay.yaml the slot is %s", got)
	}
	other := filepath.Join(t.TempDir(), "other.yaml")
	writeFile(t, other, slot("named"))
	t.Setenv("CDC_RELAY_CONFIG", other)
	if got := printed(); got != "named" {
		t.Errorf("with $CDC_RELAY_CONFIG the slot is %s", got)
	}
	writeFile(t, "flag.yaml", slot("flag"))
	if got := printed("-c", "flag.yaml"); got != "flag" {
		t.Errorf("with -c the slot is %s", got)
	}
	t.Setenv("CDC_RELAY_CONFIG", "/nonexistent.yaml")
	if code, _, stderr := commandLine(t, "config", "print"); code != 2 || !strings.Contains(stderr, "/nonexistent.yaml") {
		t.Errorf("a named file that is missing: exit %d, %q", code, stderr)
	}
}

func TestConfigValidate(t *testing.T) {
	emptyDirectory(t)
	writeFile(t, "cdc-relay.yaml", config.Minimal)
	if code, stdout, stderr := commandLine(t, "config", "validate"); code != 0 || stdout != "the configuration is valid\n" || stderr != "" {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	writeFile(t, "cdc-relay.yaml", config.Minimal+"delivery: {ordring: 5, lanes: 0}\n")
	code, stdout, stderr := commandLine(t, "config", "validate")
	want := `cdc-relay: the configuration cannot be used: 2 faults
  cdc-relay.yaml:4:12: delivery.ordring: unknown key, the nearest known one is delivery.ordering
  cdc-relay.yaml:4:31: delivery.lanes: is "0", want a whole number from 1 to 1024
`
	if code != 2 || stdout != "" || stderr != want {
		t.Errorf("exit %d, %q, stderr\n%s", code, stdout, stderr)
	}
	writeFile(t, "cdc-relay.yaml", config.Minimal+"delivery: {exchange: orders}\n")
	code, stdout, stderr = commandLine(t, "config", "validate")
	want = `cdc-relay: the configuration cannot be used: cdc-relay.yaml:4:12: delivery.exchange: unknown key;
  known here are ordering, lanes, max_in_flight, max_in_flight_bytes, confirm_timeout, shutdown_grace;
  elsewhere there is sink.rabbitmq.exchange and sink.rabbitmq.allow.exchange and dead_letters.mirror.exchange
`
	if code != 2 || stdout != "" || stderr != want {
		t.Errorf("exit %d, %q, stderr\n%s", code, stdout, stderr)
	}
}

func TestVersion(t *testing.T) {
	if code, stdout, _ := commandLine(t, "version"); code != 0 || !strings.HasPrefix(stdout, "cdc-relay ") || !strings.Contains(stdout, " go1.") {
		t.Errorf("exit %d, %q", code, stdout)
	}
	_, want, _ := commandLine(t, "version")
	for _, flag := range []string{"--version", "-v"} {
		if code, stdout, stderr := commandLine(t, flag); code != 0 || stdout != want || stderr != "" {
			t.Errorf("%s: exit %d, %q, %q, want %q", flag, code, stdout, stderr, want)
		}
	}
	code, stdout, _ := commandLine(t, "version", "--json")
	var b map[string]any
	if err := json.Unmarshal([]byte(stdout), &b); err != nil || code != 0 {
		t.Fatalf("exit %d, %q: %v", code, stdout, err)
	}
	for _, name := range []string{"version", "commit", "date", "modified", "go", "platform"} {
		if _, ok := b[name]; !ok {
			t.Errorf("no %s in %s", name, stdout)
		}
	}
}

// What the linker says of the commit counts; without it, what go build has found.
func TestVersionOfTheLinker(t *testing.T) {
	b := command.ThisBuild(command.Linked{Version: "v1.2.3", Commit: "903ae-dirty", Date: "2026-11-30T05:00:00Z"})
	want := "cdc-relay v1.2.3 (903ae of 2026-11-30T05:00:00Z, modified) " + b.Go + " " + b.Platform
	if got := b.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// No line of a help text is longer than a message may be, and every command has an example.
func TestHelpFits(t *testing.T) {
	root, _ := cli.NewRoot(command.Linked{}, newRun)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	count := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		count++
		code, stdout, stderr := commandLine(t, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "Usage:\n  "+cmd.CommandPath()) {
			t.Errorf("%s --help: exit %d, %s%s", cmd.CommandPath(), code, stdout, stderr)
		}
		if cmd.Short == "" || cmd.Runnable() && !cmd.HasSubCommands() && cmd.Example == "" && cmd.Name() != "help" && !strings.Contains(cmd.CommandPath(), "completion") {
			t.Errorf("%s has no description or no example", cmd.CommandPath())
		}
		for line := range strings.Lines(stdout) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 {
				t.Errorf("%s --help has a line of %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if count < 30 {
		t.Errorf("only %d commands were found", count)
	}
}

// Everything that is wrong with a line is exit 2 and one message, before a server is asked: nobody
// listens at its address.
func TestUsageOfAConfiguredRelay(t *testing.T) {
	emptyDirectory(t)
	writeFile(t, "cdc-relay.yaml", "source: {url: postgres://nobody@127.0.0.1:1/nowhere}\nsink: {stdout: {}}\n")
	for line, words := range map[string][]string{
		"dead-letters":                             {"wants one of", "replay"},
		"dead-letters nonsense":                    {"not nonsense"},
		"dead-letters list more":                   {"takes no argument", "more"},
		"dead-letters list --limit 0":              {"--limit is 0, want 1 to 1000"},
		"dead-letters list --limit many":           {"--limit is \"many\"; want a whole number"},
		"dead-letters list --class fatal":          {"--class is \"fatal\"", "destination, transient, permanent"},
		"dead-letters list --class=":               {"--class is empty"},
		"dead-letters list --state dead":           {"--state is \"dead\"", "open, replaying"},
		"dead-letters list --from yesterday":       {"--from is \"yesterday\"", "2026-11-20"},
		"dead-letters list --from -5m":             {"--from"},
		"dead-letters list --from 1h --to 2h":      {"--to is", "not after from"},
		"dead-letters list --key a --key-of 1":     {"--key-of excludes key"},
		"dead-letters show":                        {"wants the number of one row"},
		"dead-letters show 0":                      {`"0" is not the number of a row`},
		"deferred list --state open":               {"unknown flag: --state"},
		"dead-letters replay":                      {"no rows named", "--all"},
		"dead-letters replay --class permanent":    {"--class is a filter: add --all"},
		"dead-letters replay 1 --all":              {"numbers and --all exclude each other"},
		"dead-letters replay 1 --key k1":           {"numbers and --key exclude"},
		"dead-letters replay 1 --id e-1":           {"numbers and --id exclude"},
		"dead-letters replay --id e-1 --rate 5/s":  {"--rate needs --all"},
		"dead-letters replay x":                    {`"x" is not the number of a row`},
		"dead-letters replay 1 --rate 5/s":         {"--rate needs --all"},
		"dead-letters replay --all --rate 0/s":     {"--rate is \"0/s\""},
		"dead-letters replay --all --rate 5/m":     {"--rate is \"5/m\"", "50/s"},
		"dead-letters replay --all --rate=":        {"--rate is \"\""},
		"dead-letters replay 1 --wait -1s":         {"--wait is -1s"},
		"dead-letters replay 1 --exchange x":       {"--exchange and --routing-key are for RabbitMQ"},
		"dead-letters replay 1 --topic x":          {"--topic is for Kafka"},
		"dead-letters discard 1 --exchange x":      {"unknown flag: --exchange"},
		"dead-letters purge --class permanent":     {"add --all"},
		"dead-letters job --cancel":                {"no job named"},
		"dead-letters request":                     {"wants the number of one request"},
		"deferred retry --all --destination=":      {"--destination is empty"},
		"deferred dead-letter":                     {"no rows named"},
		"compare debezium --theirs a --ours b":     {"neither Kafka nor RabbitMQ"},
		"events":                                   {"wants one of list, show"},
		"resend":                                   {"no rows named"},
		"init --backfill --no-backfill":            {"--backfill"},
		"init --backfill --no-slot":                {"--backfill"},
		"init --backfill --print":                  {"--backfill"},
		"init --backfill=":                         {"--backfill"},
		"init --unordered":                         {"--backfill"},
		"resend --none":                            {"no rows named"},
		"resend --unsent --key a":                  {"--unsent excludes --key"},
		"resend --aggregate order":                 {"--aggregate needs"},
		"resend --key 1 --rate fast":               {"--rate is \"fast\""},
		"resend --from noon":                       {"--from is \"noon\""},
		"resend --key 1 --topic t":                 {"--topic is for Kafka"},
		"resend --key 1 --order-by a --unordered":  {"exclude each other"},
		"resend --from 2026-11-02 --to 2026-11-01": {"--from is not before --to"},
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

// This file checks what the pages show and only the commands can judge: each configuration is
// valid, each line of docs/dead-letters.md is understood. What needs no command is in test/docs.

// Every piece of configuration in the pages and in examples/ is valid, alone or added to the
// smallest one.
func TestConfigurationsOfTheDocuments(t *testing.T) {
	configs := map[string]string{}
	for _, page := range pages.All(t) {
		for _, block := range pages.Fences(pages.Text(t, page), "yaml") {
			configs[page+": "+block.Text] = block.Text
		}
	}
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range examples {
		name := path.Join("examples", filepath.Base(example))
		configs[name] = pages.Text(t, name)
	}
	if len(configs) < 14 {
		t.Fatalf("only %d configurations were found", len(configs))
	}
	emptyDirectory(t)
	for where, config := range configs {
		config = regexp.MustCompile(`\$\{((file|exec):[^}]*|[A-Z_]+)\}`).ReplaceAllString(config, "a-value-from-elsewhere")
		// the file would be read
		config = regexp.MustCompile(`&sslrootcert=\S+`).ReplaceAllString(config, "")
		if !regexp.MustCompile(`(?m)^source:`).MatchString(config) {
			config = "source: {url: postgres://nobody@127.0.0.1:1/nowhere}\n" + config
		}
		if !regexp.MustCompile(`(?m)^sink:`).MatchString(config) {
			config += "sink: {stdout: {}}\n"
		}
		writeFile(t, "cdc-relay.yaml", config)
		if code, _, stderr := commandLine(t, "config", "validate"); code != 0 {
			t.Errorf("%s\n%s", where, strings.TrimSpace(stderr))
		}
	}
}

// The command lines of docs/dead-letters.md are lines that the command understands.
func TestCommandsOfDeadLetters(t *testing.T) {
	lines := 0
	for _, block := range pages.Fences(pages.Text(t, "docs/dead-letters.md"), "sh") {
		for line := range strings.Lines(block.Text) {
			rest, ours := strings.CutPrefix(strings.TrimSpace(line), "cdc-relay ")
			if !ours {
				continue
			}
			lines++
			rest = regexp.MustCompile(`'[^']*'|"[^"]*"`).ReplaceAllString(rest, "x")
			rest, _, _ = strings.Cut(rest, " #")
			if code, stdout, stderr := commandLine(t, append(strings.Fields(rest), "--help")...); code != 0 || !strings.Contains(stdout, "Usage:") {
				t.Errorf("%s: exit %d: %s", line, code, stderr)
			}
		}
	}
	if lines < 10 {
		t.Errorf("only %d lines were found", lines)
	}
}
