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
			var file Input
			var worker *Input
			for _, part := range strings.Split("\n"+d.Input, "\n== ")[1:] {
				name, content, _ := strings.Cut(part, "\n")
				input := Input{Name: name, Content: []byte(content)}
				if strings.HasPrefix(name, "worker") {
					worker = &input
					continue
				}
				file = input
			}
			r, err := Import(file, worker)
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

// Java reads a .properties file of Kafka Connect as Latin 1, one of Debezium Server as UTF-8.
func TestEncodingOfProperties(t *testing.T) {
	for content, want := range map[string]string{"connector.class=x\na=\u00fc": "\u00c3\u00bc", "connector.class=x\na=\\u00fc": "\u00fc", "debezium.a=x\na=\u00fc": "\u00fc"} {
		_, pairs, err := readInput(Input{Name: "a.properties", Content: []byte(content)})
		if err != nil || !slices.Contains(pairs, pair{"a", want}) {
			t.Errorf("%q gives %q, %v", content, pairs, err)
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
		"producer.override.sasl.oauthbearer.client.secret=%",
	} {
		text := strings.Join(append(slices.Clone(connector), strings.ReplaceAll(property, "%", secret),
			"producer.override.security.protocol=SASL_SSL", "producer.override.sasl.mechanism=PLAIN"), "\n")
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

const postgresClass = "io.debezium.connector.postgresql.PostgresConnector"

// No file makes it panic; and every name that is read is in the report.
func FuzzImport(f *testing.F) {
	for _, seed := range []string{
		`{"connector.class":"x","transforms":"a","transforms.a.type":"` + eventRouter + `","transforms.a.predicate":"p"}`,
		`{"name":1,"config":{"connector.class":null}}`, "debezium.sink.type=rabbitmq\ndebezium.sink.rabbitmq.connection.uri=amqp://a:b@[::1]:5/%2f", "DEBEZIUM_SINK_TYPE=kafka\nA=${B:${C}}",
		"%prod.debezium.x=${${}}$$", "connector.class=x\ntable.include.list=(a|b)?.[a-c]+\ncolumn.mask.x=(((",
		"connector.class=" + postgresClass + "\nproducer.override.security.protocol=SASL_SSL\nproducer.override.sasl.mechanism=PLAIN\nproducer.override.sasl.jaas.config=x.PlainLoginModule required username=\"",
	} {
		for _, name := range []string{"f.json", "f.properties", "stdin"} {
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
		address, err := c.Source.URL.Read()
		if err != nil {
			t.Fatal(err)
		}
		if driver, err := pgconn.ParseConfig(address); err != nil || driver.User != want {
			t.Errorf("%q: the driver reads %s as %+v: %v", want, address, driver, err)
		}
	}
}
