//go:build nightly

// This file runs the relays of deploy/compose.yaml on real servers: their configurations as they
// are but for the addresses, with the certificates of prepare.sh, the rules of pg_hba.conf, the
// roles of deploy/sql and the broker's settings and definitions.
package cli

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

// composition is what compose.yaml starts, without containers.
type composition struct {
	*rig  // the owner's, without TLS
	made  string
	pg    *pgserver.Postgres
	mq    *rabbitserver.Rabbit
	kafka *kafkaserver.Kafka
	topic string
}

func compose(t *testing.T) *composition {
	t.Helper()
	c := &composition{made: t.TempDir(), kafka: servers.SharedKafka(t)}
	for _, folder := range []string{"postgres", "rabbitmq", "relay", "shop"} {
		must(t, os.Mkdir(filepath.Join(c.made, folder), 0o755))
	}
	out, err := exec.CommandContext(await.Context(t), "sh", "../../deploy/compose/prepare.sh", c.made).CombinedOutput()
	if err != nil {
		t.Fatalf("prepare.sh: %v: %s", err, out)
	}
	c.pg, err = pgserver.Start(await.Context(t), pgserver.Options{
		NoFsync: true, Certs: c.certificates("postgres"), HBA: strings.Split(document(t, "deploy/compose/pg_hba.conf"), "\n"),
	})
	must(t, err)
	t.Cleanup(func() { must(t, c.pg.Close()) })
	c.mq, err = rabbitserver.Start(await.Context(t), rabbitserver.Options{Certs: c.certificates("rabbitmq"), Config: brokerSettings(t)})
	must(t, err)
	t.Cleanup(func() { must(t, c.mq.Close()) })
	definitions, err := filepath.Abs("../../deploy/compose/rabbitmq-definitions.json")
	must(t, err)
	_, err = c.mq.Ctl(await.Context(t), "import_definitions", definitions)
	must(t, err)

	owner := on(t, c.pg.URL("postgres"))
	c.topic = owner.slot + ".order"
	must(t, c.kafka.CreateTopic(await.Context(t), c.topic, 6, 1, nil))
	t.Cleanup(func() { must(t, c.kafka.DeleteTopic(await.Context(t), c.topic)) })
	owner.exec(`ALTER ROLE postgres PASSWORD 'postgres'`)
	owner.exec(`CREATE DATABASE shop`)
	c.rig = on(t, c.pg.URL("shop"))
	for _, file := range []string{"deploy/sql/01-roles.sql", "deploy/compose/passwords.sql"} {
		cmd := exec.CommandContext(await.Context(t), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", c.db, "-f", "../../"+file)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", file, err, out)
		}
	}
	return c
}

// certificates are what prepare.sh has made for a server.
func (c *composition) certificates(server string) *testcerts.Certificates {
	in := func(name string) string { return filepath.Join(c.made, server, name) }
	return &testcerts.Certificates{CA: in("ca.pem"), Server: testcerts.CertificateFiles{Cert: in("server.pem"), Key: in("server.key")}}
}

// brokerSettings are those of rabbitmq.conf that are not the test's own: ports and paths.
func brokerSettings(t *testing.T) map[string]string {
	t.Helper()
	settings := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^([a-z_.]+) = (.*)$`).FindAllStringSubmatch(document(t, "deploy/compose/rabbitmq.conf"), -1) {
		settings[line[1]] = line[2]
	}
	for _, name := range []string{"listeners.tcp", "listeners.ssl.default", "ssl_options.cacertfile", "ssl_options.certfile", "ssl_options.keyfile", "load_definitions"} {
		if settings[name] == "" {
			t.Fatalf("rabbitmq.conf does not set %s", name)
		}
		delete(settings, name)
	}
	return settings
}

// as is a text of compose with the addresses and paths of this test.
func (c *composition) as(text string) string {
	return strings.NewReplacer(
		"postgres:5432", c.pg.Addr(), "rabbitmq:5671", c.mq.TLSAddr(), "[kafka:9092]", "['"+c.kafka.Brokers()[0]+"']\n    topic: "+strings.TrimSuffix(c.topic, "order")+"{aggregate}",
		"/run/secrets/cdc-relay", filepath.Join(c.made, "relay"), "/run/secrets/shop", filepath.Join(c.made, "shop"), "0.0.0.0:8464", "127.0.0.1:0", "0.0.0.0:8465", "127.0.0.1:0",
	).Replace(text)
}

func (c *composition) config(file string) string {
	return c.as(document(c.t, "deploy/compose/"+file))
}

// run runs a command with one of the configurations.
func (c *composition) run(config string, args ...string) runner.Result {
	c.t.Helper()
	res, err := runner.RunCommand(await.Context(c.t), c.binary, config, args...)
	must(c.t, err)
	return res
}

// What a newcomer starts: over TLS, to servers whose certificates are verified, the event arrives
// in the queue that the definitions make, sent by a user who may write to the exchange and nothing
// else; and in the topic, sent by a second relay with a slot of its own.
func TestComposeRelaysDeliver(t *testing.T) {
	t.Parallel()
	c := compose(t)
	config := c.config("rabbitmq.yaml")
	command := regexp.MustCompile(`command: \[(init, .*)\]`).FindStringSubmatch(document(t, "deploy/compose.yaml"))
	args := strings.Split(c.as(strings.ReplaceAll(command[1], `"`, "")), ", ")
	for range 2 { // it runs at every start
		if res := c.run(config, args...); res.Code != 0 {
			t.Fatalf("%v: exit %d: %s", args, res.Code, res.Stderr)
		}
	}
	c.refusesClearText(config)
	rabbit := runner.Start(t, c.binary, config)
	must(t, rabbit.WaitReady(await.Context(t)))
	c.opensTheConsole(rabbit.Admin())
	second := runner.Start(t, c.binary, c.config("kafka.yaml"))
	must(t, second.WaitReady(await.Context(t)))
	c.insert(1)

	eventually(t, c.arrivedIn("orders"))
	k := &topical{rig: c.rig, kafka: c.kafka}
	if r := k.records(c.topic, 1)[0]; r.Header("eventType") != "created" {
		t.Errorf("what arrived is %+v", r)
	}
	c.shopDelivers()
	for _, relay := range []*runner.Relay{rabbit, second} {
		ended(t, relay)
	}
}

// opensTheConsole checks that the console is where compose.yaml says, and opens with the token that
// its command prints.
func (c *composition) opensTheConsole(admin string) {
	t := c.t
	t.Helper()
	text := document(t, "deploy/compose.yaml")
	for _, said := range []string{"http://localhost:8466/console/", `"127.0.0.1:8466:8465"`, "/made/relay/operate-token"} {
		if !strings.Contains(text, said) {
			t.Errorf("compose.yaml does not say %s", said)
		}
	}
	token, err := os.ReadFile(filepath.Join(c.made, "relay/operate-token"))
	must(t, err)
	for _, ask := range []struct {
		path, token string
		code        int
	}{{"/console/", "", 200}, {"/api/v1/status", "", 401}, {"/api/v1/status", strings.TrimSpace(string(token)), 200}} {
		r, err := http.NewRequestWithContext(await.Context(t), http.MethodGet, admin+ask.path, nil)
		must(t, err)
		if ask.token != "" {
			r.Header.Set("Authorization", "Bearer "+ask.token)
		}
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		must(t, answer.Body.Close())
		if answer.StatusCode != ask.code {
			t.Errorf("%s answers %d, want %d", ask.path, answer.StatusCode, ask.code)
		}
	}
}

// arrivedIn takes an event out of a queue, over TLS, as the operator of the broker.
func (c *composition) arrivedIn(queue string) func() string {
	t := c.t
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(c.made, "relay/ca.pem"))
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	conn, err := amqp.DialTLS("amqps://shop:shop@"+c.mq.TLSAddr()+"/", &tls.Config{RootCAs: pool})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	return func() string {
		message, ok, err := ch.Get(queue, true)
		must(t, err)
		if !ok {
			return "queue " + queue + " is empty"
		}
		if message.Type != "created" {
			t.Errorf("what arrived is %+v", message)
		}
		return ""
	}
}

// refusesClearText checks that check has nothing against the login, and that neither a login
// without TLS nor one to a server of another CA succeeds.
func (c *composition) refusesClearText(config string) {
	t := c.t
	t.Helper()
	res := c.run(config, "check", "--json")
	if f := line(t, res, "postgres login"); f.Level != "ok" || f.Detail != "over TLS, and the server is verified" || res.Code != 0 {
		t.Errorf("exit %d: %+v", res.Code, f)
	}
	certs, err := testcerts.NewCertificates()
	must(t, err)
	ca := filepath.Join(c.made, "relay/ca.pem")
	for name, weak := range map[string]string{
		"no encryption": strings.Replace(config, "sslmode=verify-full&sslrootcert="+ca, "sslmode=disable", 1),
		"certificate signed by unknown authority": strings.Replace(config, "sslrootcert="+ca, "sslrootcert="+certs.CA, 1),
		"the port does not speak TLS":             strings.Replace(config, c.mq.TLSAddr(), c.mq.Addr(), 1),
	} {
		if res := c.run(weak, "check", "--json"); res.Code != 1 || !strings.Contains(res.Stdout, name) {
			t.Errorf("want %q: exit %d: %s%s", name, res.Code, res.Stdout, res.Stderr)
		}
	}
}
