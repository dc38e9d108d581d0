package importer

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/jackc/pgx/v5/pgconn"
)

// Whole files, and the configuration and the report that come of them. Each file of the input
// begins with a line == NAME; one called worker is the worker's.
func TestWhole(t *testing.T) {
	datadriven.Walk(t, "testdata/whole", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			r, err := Import(files(d))
			if err != nil {
				return "error: " + err.Error()
			}
			if r.Count(Cannot) == 0 {
				loads(t, r)
			}
			var out strings.Builder
			if err := r.Write(&out); err != nil {
				t.Fatal(err)
			}
			out.WriteString("--\n")
			if err := r.Report(&out); err != nil {
				t.Fatal(err)
			}
			return out.String()
		})
	})
}

// The commonest public configurations of an outbox, as facts: the names and kinds of values of
// those that a comment names, in files of our own. Each is imported without --force, and the relay
// reads what is written; or one line says what is missing. The output is the configuration, and
// what a person has to read.
func TestPublic(t *testing.T) {
	datadriven.Walk(t, "testdata/public", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			r, err := Import(files(d))
			if err != nil {
				t.Fatal(err)
			}
			switch r.Count(Cannot) {
			case 0:
				loads(t, r)
			case 1:
			default:
				t.Errorf("%s: more than one line is refused", d.Pos)
			}
			out := strings.Join(yamlLines(t, r), "\n") + "\n--\n"
			for _, e := range r.Entries {
				if e.Verdict == Cannot || e.Warning && !strings.HasSuffix(e.Why, leftOutHeaders) {
					out += string(e.Verdict) + ": " + e.Line() + "\n"
				}
			}
			return out
		})
	})
}

// files are the files of a case: a connector's, and that of its worker if there is one.
func files(d *datadriven.TestData) (file Input, worker *Input) {
	for _, part := range strings.Split("\n"+d.Input, "\n== ")[1:] {
		name, content, _ := strings.Cut(part, "\n")
		input := Input{Name: name, Content: []byte(content)}
		if strings.HasPrefix(name, "worker") {
			worker = &input
			continue
		}
		file = input
	}
	return file, worker
}

// Java reads a .properties file of Kafka Connect as Latin 1, one of Debezium Server as UTF-8.
func TestEncodingOfProperties(t *testing.T) {
	for content, want := range map[string]string{"connector.class=x\na=\u00fc": "\u00c3\u00bc", "connector.class=x\na=\\u00fc": "\u00fc", "debezium.a=x\na=\u00fc": "\u00fc"} {
		_, pairs, err := readInput(Input{Name: "a.properties", Content: []byte(content)})
		if err != nil || !slices.Contains(pairs, pair{"a", want}) {
			t.Errorf("%q gives %q, %v", content, pairs, err)
		}
	}
}

// What an editor on Windows does to a file changes nothing: a byte order mark, and ends of lines.
func TestWindows(t *testing.T) {
	worker := []byte("bootstrap.servers=k:9092\nkey.converter=" + classJSON + "\nvalue.converter=" + classJSON + "\n")
	for name, text := range map[string]string{
		"c.json":       strings.ReplaceAll(connector, "slot.name", "slot.max.retries"),
		"c.properties": "connector.class=" + postgresClass + "\ndatabase.hostname=h\ntopic.prefix=p\ntable.include.list=public.outbox\ntransforms=o\ntransforms.o.type=" + eventRouter + "\n",
		"c.yaml":       "kind: KafkaConnector\nspec:\n  class: " + postgresClass + "\n  config:\n    database.hostname: h\n    table.include.list: public.outbox\n    transforms: o\n    transforms.o.type: " + eventRouter + "\n",
	} {
		windows := func(text []byte) []byte {
			return []byte("\xef\xbb\xbf" + strings.ReplaceAll(string(text), "\n", "\r\n"))
		}
		var outs [2]strings.Builder
		for i, convert := range []func([]byte) []byte{slices.Clone[[]byte], windows} {
			r, err := Import(Input{Name: name, Content: convert([]byte(text))}, &Input{Name: "w.properties", Content: convert(worker)})
			if err != nil {
				t.Fatal(name, err)
			}
			for _, err := range []error{r.Report(&outs[i]), r.Write(&outs[i])} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if outs[0].String() != outs[1].String() {
			t.Errorf("%s: want\n%s\nhave\n%s", name, outs[0].String(), outs[1].String())
		}
	}
}

// Whatever is secret shows neither in the report nor in what others may read, wherever it stands
// and whatever becomes of it.
func TestSecretsStayHidden(t *testing.T) {
	const secret = "s3cr3t-of-somebody"
	connector := []string{
		"connector.class=" + postgresClass, "plugin.name=pgoutput", "database.hostname=h", "topic.prefix=p", "table.include.list=public.outbox",
		"transforms=outbox", "transforms.outbox.type=" + eventRouter,
		"key.converter=org.apache.kafka.connect.storage.StringConverter", "value.converter=org.apache.kafka.connect.storage.StringConverter",
		"producer.override.bootstrap.servers=k:9092",
	}
	for _, property := range []string{
		"database.password=%", "database.password=${vault:a:%}${nobody", "database.sslpassword=%", "nobody.knows.password=%", "signal.kafka.password=%",
		"schema.history.internal.producer.sasl.jaas.config=%", "producer.override.ssl.keystore.password=%", "producer.override.ssl.key.password=%",
		"producer.override.ssl.keystore.key=%", "value.converter.basic.auth.user.info=user:%",
		"producer.override.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=%;",
		"producer.override.sasl.jaas.config=com.example.Module required username=u password=%;",
		"producer.override.sasl.oauthbearer.client.secret=%", "producer.override.sasl.oauthbearer.client.credentials.client.secret=%",
		"producer.override.sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required awsRoleAccessKeyId=a awsRoleSecretAccessKey=%;",
		"producer.override.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId=a clientSecret=%;",
	} {
		text := strings.Join(append(slices.Clone(connector), strings.ReplaceAll(property, "%", secret),
			"producer.override.security.protocol=SASL_SSL", "producer.override.sasl.mechanism="+mechanismFor(property)), "\n")
		hides(t, property, secret, Input{Name: "c.properties", Content: []byte(text)}, nil)
		hides(t, "worker's "+property, secret, Input{Name: "c.properties", Content: []byte(strings.Join(connector, "\n"))},
			&Input{Name: "w.properties", Content: []byte("bootstrap.servers=k\n" + strings.ReplaceAll(strings.ReplaceAll(property, "%", secret), "producer.override.", "producer."))})
	}
	server := []string{
		"debezium.source.connector.class=" + postgresClass, "debezium.source.plugin.name=pgoutput", "debezium.source.database.hostname=h", "debezium.source.topic.prefix=p",
		"debezium.source.table.include.list=public.outbox", "debezium.transforms=outbox", "debezium.transforms.outbox.type=" + eventRouter, "debezium.sink.type=rabbitmq",
	}
	for _, property := range []string{
		"debezium.source.database.password=%", "debezium.sink.rabbitmq.connection.password=%", "debezium.sink.rabbitmq.connection.uri=amqp://u:%@h/",
		"debezium.sink.rabbitmq.connection.uri=${URI:amqp://u:%@h/}", "debezium.sink.rabbitmq.connection.uri=http://u:%@h/",
		"debezium.sink.rabbitmq.connection.uri=amqp://u:%@h:port/", "debezium.sink.rabbitmq.connection.ssl.trust.store.password=%",
		"debezium.source.database.password=${PW:%}", "debezium.source.database.password=${nobody:%}", "debezium.source.offset.storage.redis.password=%",
		"my.secret=%", "debezium.format.value.apicurio.registry.auth.password=%",
	} {
		text := strings.Join(append(slices.Clone(server), strings.ReplaceAll(property, "%", secret)), "\n")
		hides(t, property, secret, Input{Name: "a.properties", Content: []byte(text)}, nil)
	}
}

// A password that is the default of a variable is not copied, nor is that variable.
func TestPasswordIsAVariable(t *testing.T) {
	for given, want := range map[string]string{"${PGPW:pw}": "${POSTGRES_PASSWORD}", "${A}${B}": "${A}${B}", "${A:pw}x": "${POSTGRES_PASSWORD}", "pw": "${POSTGRES_PASSWORD}"} {
		text := "debezium.source.connector.class=" + postgresClass + "\ndebezium.sink.type=kafka\ndebezium.source.database.hostname=h\ndebezium.source.database.password=" + given
		r, err := Import(Input{Name: "application.properties", Content: []byte(text)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var public strings.Builder
		if err := r.Write(&public); err != nil {
			t.Fatal(err)
		}
		if line := "  password: \"" + want + "\"  #"; !strings.Contains(public.String(), line) {
			t.Errorf("%s: want %s in\n%s", given, line, public.String())
		}
	}
}

// mechanismFor is the mechanism under which a property counts.
func mechanismFor(property string) string {
	switch {
	case strings.Contains(property, "IAMLogin"):
		return "AWS_MSK_IAM"
	case strings.Contains(property, "OAuthBearerLogin"), strings.Contains(property, "oauthbearer"):
		return "OAUTHBEARER"
	}
	return "PLAIN"
}

func hides(t *testing.T, what, secret string, file Input, worker *Input) {
	t.Helper()
	r, err := Import(file, worker)
	if err != nil {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	var report, public strings.Builder
	for _, err := range []error{r.Report(&report), r.Write(&public)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(report.String(), secret) {
		t.Errorf("%s: the report has it\n%s", what, report.String())
	}
	if strings.Contains(public.String(), secret) {
		t.Errorf("%s: what goes to stdout has it\n%s", what, public.String())
	}
}

const (
	postgresClass = "io.debezium.connector.postgresql.PostgresConnector"
	classJSON     = "org.apache.kafka.connect.json.JsonConverter"
)

// No file makes it panic; and every name that is read is in the report.
func FuzzImport(f *testing.F) {
	for _, seed := range []string{
		`{"connector.class":"x","transforms":"a","transforms.a.type":"` + eventRouter + `","transforms.a.predicate":"p"}`,
		`{"name":1,"config":{"connector.class":null}}`, "debezium.sink.type=rabbitmq\ndebezium.sink.rabbitmq.connection.uri=amqp://a:b@[::1]:5/%2f", "DEBEZIUM_SINK_TYPE=kafka\nA=${B:${C}}",
		"%prod.debezium.x=${${}}$$", "connector.class=x\ntable.include.list=(a|b)?.[a-c]+\ncolumn.mask.x=(((",
		"connector.class=" + postgresClass + "\nproducer.override.security.protocol=SASL_SSL\nproducer.override.sasl.mechanism=PLAIN\nproducer.override.sasl.jaas.config=x.PlainLoginModule required username=\"",
		"kind: KafkaConnector\nspec:\n  class: " + postgresClass + "\n  config: {transforms: a, transforms.a.type: " + eventRouter + ", transforms.a.predicate: p, predicates.p.pattern: '('}",
		"connector.class=" + postgresClass + "\nproducer.override.security.protocol=SASL_SSL\nproducer.override.sasl.mechanism=OAUTHBEARER\nproducer.override.sasl.oauthbearer.token.endpoint.url=http://x\n" +
			"producer.override.sasl.jaas.config=x.OAuthBearerLoginModule required clientId=a clientSecret=b scope=\" c  d\" extension_e=\"f\"",
	} {
		for _, name := range []string{"f.json", "f.properties", "f.yaml", "stdin"} {
			f.Add(name, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		r, err := Import(Input{Name: name, Content: content}, nil)
		if err != nil {
			return
		}
		_, pairs, err := readInput(Input{Name: name, Content: content})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			if !slices.ContainsFunc(r.Entries, func(e *Entry) bool { return strings.Contains(e.Property, p.name) }) {
				t.Errorf("%q is not in the report", p.name)
			}
		}
		var out strings.Builder
		if err := r.Write(&out); err != nil {
			t.Fatal(err)
		}
		if r.Count(Cannot) == 0 {
			loads(t, r)
		}
	})
}

// The values of a connector come through the configuration as they are, whatever is in them.
func TestAnyText(t *testing.T) {
	alphabet := []rune("ab$${}'\"\\:#%é☃\t&*!|>-? ,[]@`😀~")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		text := make([]rune, 1+rng.IntN(12))
		for i := range text {
			text[i] = alphabet[rng.IntN(len(alphabet))]
		}
		want := string(text)
		if regexp.MustCompile(`\$\{[^}:]*:[^}]*\}`).MatchString(want) {
			continue // a provider's
		}
		content, err := json.Marshal(map[string]string{
			"connector.class": postgresClass, "plugin.name": "pgoutput", "database.hostname": "h", "database.user": want, "topic.prefix": "p",
			"table.include.list": "public.outbox", "transforms": "o", "transforms.o.type": eventRouter, "transforms.o.route.by.field": want,
			"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
			"producer.override.bootstrap.servers": "k:9092",
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Import(Input{Name: "c.json", Content: content}, nil)
		if err != nil || r.Count(Cannot) > 0 {
			t.Fatal(err, r)
		}
		c := loads(t, r)
		if c.Outbox.Aggregate.Names[0] != want {
			t.Errorf("%q comes out as column %q", want, c.Outbox.Aggregate.Names)
		}
		address, err := c.Source.URL.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if driver, err := pgconn.ParseConfig(address); err != nil || driver.User != want {
			t.Errorf("%q: the driver reads %s as %+v: %v", want, address, driver, err)
		}
	}
}
