package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

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
	refusal(t, run("", write("x.yaml", "a: b")), 2, "x.yaml", "is YAML")
	refusal(t, run(""), 2, "import debezium wants one FILE", "- for stdin")
}
