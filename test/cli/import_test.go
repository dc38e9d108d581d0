package cli

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// debeziumRig is a database as Debezium leaves it: its table, its publication of all tables and its
// slot.
func debeziumRig(t *testing.T) *rig {
	t.Helper()
	r := bare(t)
	r.exec(`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, type text, tenant text,
		payload jsonb, created_at timestamp)`)
	r.exec(`CREATE PUBLICATION ` + r.slot + ` FOR ALL TABLES`)
	r.exec(`SELECT pg_create_logical_replication_slot('` + r.slot + `', 'pgoutput')`)
	r.exec(`CREATE TABLE elsewhere (n int PRIMARY KEY)`)
	return r
}

// fillIn puts what is this test's own into a configuration of Debezium, and writes it to a file.
func (r *rig) fillIn(name, text string, also ...string) string {
	r.t.Helper()
	u, err := url.Parse(r.db)
	must(r.t, err)
	password, _ := u.User.Password()
	secrets := filepath.Join(r.t.TempDir(), "secrets.properties")
	must(r.t, os.WriteFile(secrets, []byte("pw="+password+"\n"), 0o600))
	pairs := append([]string{
		"HOST", u.Hostname(), "PORT", u.Port(), "USER", u.User.Username(), "DATABASE", strings.TrimPrefix(u.Path, "/"),
		"SLOT", r.slot, "SECRETS", secrets,
	}, also...)
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "@" + pairs[i] + "@"
	}
	path := filepath.Join(r.t.TempDir(), name)
	must(r.t, os.WriteFile(path, []byte(strings.NewReplacer(pairs...).Replace(text)), 0o600))
	return path
}

// importTo imports the files, and gives the configuration that came of them, with an admin port of
// the test's own.
func (r *rig) importTo(args ...string) string {
	r.t.Helper()
	out := filepath.Join(r.t.TempDir(), "cdc-relay.yaml")
	res, err := runner.RunCommand(await.Context(r.t), r.binary, "", append([]string{"import", "debezium", "-o", out}, args...)...)
	must(r.t, err)
	if res.Code != 0 || !strings.Contains(res.Stdout, "honoured (") {
		r.t.Fatalf("import exits %d: %s%s", res.Code, res.Stdout, res.Stderr)
	}
	text, err := os.ReadFile(out)
	must(r.t, err)
	return string(text) + "admin: {listen: 127.0.0.1:0}\n"
}

// goOn is what comes after the import: takeover while the other program runs, which confirms
// something, and is stopped; after which check finds nothing wrong, and run. before happens between
// the program's stop and the relay's start.
func (r *rig) goOn(config string, before func()) *runner.Relay {
	r.t.Helper()
	config = strings.Replace(config, "  create: false", "  slot: "+r.slot+"_relay\n  create: false", 1)
	run := func(code int, command ...string) {
		r.t.Helper()
		res, err := runner.RunCommand(await.Context(r.t), r.binary, config, command...)
		must(r.t, err)
		if res.Code != code {
			r.t.Fatalf("%s exits %d, want %d: %s%s", command, res.Code, code, res.Stdout, res.Stderr)
		}
	}
	run(1, "run") // the schema is not there: nothing begins from now
	run(3, "takeover", "--from-slot", r.slot)
	run(3, "run")
	r.exec(`INSERT INTO elsewhere VALUES (0)`)
	r.exec(`SELECT count(*) FROM pg_logical_slot_get_binary_changes('` + r.slot + `', NULL, NULL, 'proto_version', '1', 'publication_names', '` + r.slot + `')`)
	before()
	run(0, "takeover", "--from-slot", r.slot)
	run(0, "init")
	run(0, "check")
	relay := runner.Start(r.t, r.binary, config)
	must(r.t, relay.WaitReady(await.Context(r.t)))
	r.t.Cleanup(func() { // before the database is dropped
		for _, slot := range []string{r.slot, r.slot + "_relay"} {
			r.exec(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND NOT active`, slot)
		}
	})
	return relay
}

const importedConnector = `{"name":"orders-outbox","config":{
 "connector.class":"io.debezium.connector.postgresql.PostgresConnector","tasks.max":"1","plugin.name":"pgoutput",
 "database.hostname":"@HOST@","database.port":"@PORT@","database.user":"@USER@","database.password":"${file:@SECRETS@:pw}","database.dbname":"@DATABASE@","database.sslmode":"prefer",
 "topic.prefix":"orders","slot.name":"@SLOT@","publication.name":"@SLOT@","publication.autocreate.mode":"all_tables",
 "table.include.list":"public.outbox","snapshot.mode":"no_data","tombstones.on.delete":"false","heartbeat.interval.ms":"10000","poll.interval.ms":"100",
 "transforms":"outbox","transforms.outbox.type":"io.debezium.transforms.outbox.EventRouter",
 "transforms.outbox.table.field.event.key":"aggregate_id","transforms.outbox.table.field.event.timestamp":"created_at",
 "transforms.outbox.table.fields.additional.placement":"type:header:eventType,tenant:header",
 "transforms.outbox.route.by.field":"aggregate_type","transforms.outbox.route.topic.replacement":"${routedByValue}.events",
 "key.converter":"org.apache.kafka.connect.storage.StringConverter","value.converter":"org.apache.kafka.connect.storage.StringConverter",
 "producer.override.compression.type":"lz4"}}`

// A connector of Kafka Connect, imported: the relay takes the place of its slot, and its records
// are Debezium's. What was committed between Debezium's stop and the relay's start is among them,
// what was deleted in its own transaction, too.
func TestImportedConnector(t *testing.T) {
	t.Parallel()
	r := debeziumRig(t)
	kafka := servers.SharedKafka(t)
	aggregate := "a" + strings.TrimPrefix(r.slot, "cli_")
	topic := aggregate + ".events"
	must(t, kafka.CreateTopic(await.Context(t), topic, 12, 1, nil))
	t.Cleanup(func() { must(t, kafka.DeleteTopic(await.Context(t), topic)) })
	worker := r.fillIn("worker.properties", "bootstrap.servers=@BROKERS@\ngroup.id=connect\n", "BROKERS", strings.Join(kafka.Brokers(), ","))
	config := r.importTo(r.fillIn("connector.json", importedConnector), "--worker-config", worker)

	const id = "11111111-1111-1111-1111-111111111111"
	relay := r.goOn(config, func() {
		r.exec(`BEGIN; INSERT INTO outbox VALUES ('` + id + `', '` + aggregate + `', '10711fa5', 'created', 'eu', '{"total": 12.50}', '2026-01-02 03:04:05.678901');
		DELETE FROM outbox; INSERT INTO elsewhere VALUES (1); COMMIT`)
	})
	k := &topical{rig: r, kafka: kafka}
	got := k.records(topic, 1)[0]
	var headers []string
	for _, h := range got.Headers {
		headers = append(headers, h.Name+"="+orNull(h.Value))
	}
	if got.Partition != 11 || orNull(got.Key) != "10711fa5" || orNull(got.Value) != `{"total": 12.50}` ||
		!got.Time.Equal(time.UnixMilli(1767323045678)) || strings.Join(headers, " ") != "id="+id+" eventType=created tenant=eu" {
		t.Errorf("the record is %+v with headers %q", got, headers)
	}
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

const plainConnector = `{"connector.class":"io.debezium.connector.postgresql.PostgresConnector","plugin.name":"pgoutput","database.hostname":"db","database.user":"u",
 "database.password":"pgsecret","database.dbname":"d","topic.prefix":"p","table.include.list":"public.outbox","snapshot.mode":"never",
 "key.converter":"org.apache.kafka.connect.storage.StringConverter","value.converter":"org.apache.kafka.connect.storage.StringConverter",
 "producer.override.bootstrap.servers":"k:9092","producer.override.security.protocol":"SASL_SSL","producer.override.sasl.mechanism":"PLAIN",
 "producer.override.sasl.jaas.config":"org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" password=\"mqsecret\";",
 "transforms":"outbox","transforms.outbox.type":"io.debezium.transforms.outbox.EventRouter"%s}`

// Where the configuration and the report go, who may read them, and what stops an import.
func TestImport(t *testing.T) {
	t.Parallel()
	binary, dir := runner.Build(t), t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	run := func(stdin string, args ...string) runner.Result {
		var out, errOut bytes.Buffer
		cmd := exec.CommandContext(await.Context(t), binary, append([]string{"import", "debezium"}, args...)...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return runner.Result{Code: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errOut.String()}
	}
	good := write("good.json", fmt.Sprintf(plainConnector, ""))
	bad := write("bad.json", fmt.Sprintf(plainConnector, `,"converters":"isbn"`))
	out := filepath.Join(dir, "out.yaml")

	// To stdout, without the passwords; the report to stderr.
	for _, res := range []runner.Result{run("", good), run(fmt.Sprintf(plainConnector, ""), "-")} {
		if res.Code != 0 || !strings.Contains(res.Stdout, "password: \"${POSTGRES_PASSWORD}\"") || !strings.Contains(res.Stdout, "password: \"${KAFKA_PASSWORD}\"") ||
			!strings.Contains(res.Stderr, "honoured (") || !strings.Contains(res.Stderr, "WARNING: a password stands in the file") {
			t.Errorf("exit %d\n%s\n%s", res.Code, res.Stdout, res.Stderr)
		}
		hidden(t, res.Stdout+res.Stderr)
	}
	refusal(t, run("A=b\n", "-", "--worker-config", "-"), 2, "stdin can be read once")

	// What cannot be carried over stops it, and nothing is written.
	res := run("", bad, "-o", out)
	refusal(t, res, 2, "nothing is written", "--force")
	if _, err := os.Stat(out); !os.IsNotExist(err) || !strings.Contains(res.Stdout, "cannot (1)\n  converters (") {
		t.Errorf("%v: %s", err, res.Stdout)
	}
	hidden(t, res.Stdout+res.Stderr)
	// With --force it is written, for its owner alone, and says what it lacks.
	res = run("", bad, "-o", out, "--force")
	if res.Code != 0 || res.Stderr != "" || !strings.Contains(res.Stdout, "cannot (1)") || !strings.Contains(res.Stdout, "honoured (") {
		t.Errorf("exit %d: %s%s", res.Code, res.Stdout, res.Stderr)
	}
	text, err := os.ReadFile(out)
	must(t, err)
	hidden(t, res.Stdout+res.Stderr+string(text))
	info, err := os.Stat(out)
	must(t, err)
	if info.Mode().Perm() != 0o600 || !strings.Contains(string(text), `password: "${POSTGRES_PASSWORD}"`) || !strings.Contains(string(text), "# CANNOT: converters (") {
		t.Errorf("%v: %s", info.Mode(), text)
	}
	check, err := runner.RunCommand(await.Context(t), binary, strings.ReplaceAll(string(text), "${", "$${"), "config", "validate")
	must(t, err)
	if check.Code != 0 {
		t.Error(check.Stderr)
	}
	// Nothing is overwritten.
	refusal(t, run("", good, "-o", out), 2, out+" exists", "nothing is overwritten")
	// What is no configuration of one Debezium.
	refusal(t, run("", good, bad), 2, "two connectors are not one")
	refusal(t, run("", good, "--worker-config", good), 2, "good.json", "it configures no worker")
	refusal(t, run("", filepath.Join(dir, "nobody.json")), 2, "no such file")
	refusal(t, run("a: [", write("x.yaml", "a: [")), 2, "x.yaml", "is YAML")
	refusal(t, run(""), 2, "import debezium wants one FILE", "- for stdin")
}
