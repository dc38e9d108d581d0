package deploycheck

import (
	"cmp"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// shipped are the configurations that people start from.
func shipped(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, name := range []string{"deploy/systemd/cdc-relay.yaml", "deploy/compose/rabbitmq.yaml", "deploy/compose/kafka.yaml"} {
		texts[name] = read(t, name)
	}
	for _, name := range []string{"deploy/kubernetes/rabbitmq.yaml", "deploy/kubernetes/kafka.yaml"} {
		texts[name] = configOf(t, decode(t, map[string]string{name: read(t, name)}))
	}
	return texts
}

// shippedConfig is what of a configuration keeps it safe, as it is written.
type shippedConfig struct {
	Source struct{ URL, Password string }
	Sink   struct {
		RabbitMQ *struct {
			URL, Username, Password string
			TLS                     struct{ CA string }
		}
		Kafka *struct {
			Brokers []string
			TLS     struct {
				Enabled bool
				CA      string
			}
			SASL struct{ Password string }
		}
	}
	Admin struct {
		Listen        string
		MetricsListen string `json:"metrics_listen"`
		Tokens        []struct{ Name, Role, Value string }
	}
}

// The servers are verified, PostgreSQL's is not given a password in clear, the broker is reached
// over TLS, and the API is on loopback, with tokens that are files. Kafka of compose.yaml has no
// TLS, and says what for.
func TestSamplesAreHardened(t *testing.T) {
	t.Parallel()
	for name, text := range shipped(t) {
		var c shippedConfig
		must(t, yaml.Unmarshal([]byte(text), &c))
		u, err := url.Parse(c.Source.URL)
		must(t, err)
		for key, want := range map[string]string{"sslmode": "verify-full", "require_auth": "scram-sha-256"} {
			if got := u.Query().Get(key); got != want {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
		if !caPath.MatchString(u.Query().Get("sslrootcert")) {
			t.Errorf("%s: sslrootcert is %q", name, u.Query().Get("sslrootcert"))
		}
		switch mq := c.Sink.RabbitMQ; {
		case mq != nil && (!strings.HasPrefix(mq.URL, "amqps://") || !caPath.MatchString(mq.TLS.CA)):
			t.Errorf("%s: sink.rabbitmq is %+v", name, mq)
		case mq == nil && name == "deploy/compose/kafka.yaml" && !strings.Contains(text, "only for trying"):
			t.Errorf("%s: no word that this is for trying", name)
		case mq == nil && name != "deploy/compose/kafka.yaml" && !(c.Sink.Kafka.TLS.Enabled && caPath.MatchString(c.Sink.Kafka.TLS.CA)):
			t.Errorf("%s: there is no broker with TLS", name)
		}
		// Compose publishes it on the machine's 127.0.0.1 alone, for the console.
		trying := strings.HasPrefix(name, "deploy/compose/")
		if host, _, err := net.SplitHostPort(c.Admin.Listen); err != nil || host != "127.0.0.1" && !(trying && host == "0.0.0.0") {
			t.Errorf("%s: admin.listen is %q", name, c.Admin.Listen)
		}
		if len(c.Admin.Tokens) == 0 {
			t.Errorf("%s: there is no token", name)
		}
		for _, token := range c.Admin.Tokens {
			if !regexp.MustCompile(`^\$\{file:[^}]+\}$`).MatchString(token.Value) {
				t.Errorf("%s: the token %s is no file: %s", name, token.Name, token.Value)
			}
		}
		if strings.HasPrefix(name, "deploy/compose/") { // its passwords are for trying
			continue
		}
		var broker string
		if c.Sink.Kafka != nil {
			broker = c.Sink.Kafka.SASL.Password
		} else {
			broker = c.Sink.RabbitMQ.Password
		}
		for _, secret := range []string{c.Source.Password, broker} {
			if len(secretFiles(secret)) != 1 {
				t.Errorf("%s: a password is no file: %s", name, secret)
			}
		}
	}
}

// notLocal finds what sends a login through a network in clear text, or to a server that is not
// verified: anywhere in deploy/, and in examples/ to another host than this one.
var notLocal = map[string]*regexp.Regexp{
	"deploy":   regexp.MustCompile(`amqp://[^ ]*|sslmode=(?:disable|allow|prefer|require|verify-ca)|guest:guest`),
	"examples": regexp.MustCompile(`amqp://(?:[^@/ ]*@)?[^l/@ ][^/@ ]*/|postgres://(?:[^@/ ]*@)?[^l/@ ][^/@ ]*/[a-z]+(?: |$)`),
}

func TestNothingShippedIsInClear(t *testing.T) {
	t.Parallel()
	for name, text := range texts(t) {
		dir, _, _ := strings.Cut(name, "/")
		bad := notLocal[dir]
		if bad == nil {
			continue
		}
		for _, found := range bad.FindAllString(text, -1) {
			t.Errorf("%s: %s", name, found)
		}
		if dir != "examples" || filepath.Ext(name) != ".yaml" {
			continue
		}
		var c struct {
			Sink struct {
				Kafka *struct {
					Brokers []string
					TLS     struct{ Enabled bool }
				}
			}
		}
		must(t, yaml.Unmarshal([]byte(text), &c))
		if k := c.Sink.Kafka; k != nil && !k.TLS.Enabled && !strings.HasPrefix(k.Brokers[0], "localhost:") {
			t.Errorf("%s: %v without TLS", name, k.Brokers)
		}
	}
	for text, dir := range map[string]string{
		"url: amqp://rabbitmq:5672/": "deploy", "postgres://relay@db/shop?sslmode=prefer": "deploy",
		"url: amqp://guest:guest@mq.example:5672/": "examples", "url: amqp://mq.example:5672/": "examples", "url: postgres://relay@db.example:5432/shop": "examples",
	} {
		if !notLocal[dir].MatchString(text) {
			t.Errorf("%s may stand in %s", text, dir)
		}
	}
}

// The commands that make secrets leave them to their owner alone, and what prepare.sh makes is
// nobody else's; the CA's key is nowhere.
func TestSecretsAreNotReadable(t *testing.T) {
	t.Parallel()
	unit := read(t, unitFile)
	for _, line := range strings.Split(unit, "\n") {
		if strings.HasPrefix(line, "#") && strings.Contains(line, "/etc/cdc-relay/credentials/") && !strings.Contains(line, "install -m 600 /dev/stdin ") {
			t.Errorf("%s: %s", unitFile, line)
		}
	}
	if !strings.Contains(unit, "install -d -m 700 /etc/cdc-relay/credentials\n") {
		t.Errorf("%s: the directory of the credentials is open", unitFile)
	}
	_, create, _ := strings.Cut(read(t, "docs/running.md"), "### Kubernetes\n")
	create, _, _ = strings.Cut(create, "\n```\n")
	if !strings.Contains(create, "umask 077") || !strings.Contains(create, "kubectl create secret generic cdc-relay ") || strings.Contains(create, "--from-literal") {
		t.Errorf("docs/running.md: secrets are readable, or in the history of the shell:\n%s", create)
	}
	for _, name := range []string{chartFolder + "/examples/rabbitmq.yaml", chartFolder + "/examples/kafka.yaml"} {
		head, values, _ := strings.Cut(read(t, name), "\nconfig:")
		for _, found := range secretPath.FindAllStringSubmatch(values, -1) {
			if !strings.Contains(head, found[1]) {
				t.Errorf("%s: the first lines do not say that the Secret or the ConfigMap must have %s", name, found[1])
			}
		}
	}
	secrets := 0
	dir := prepared(t)
	must(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		if name := entry.Name(); strings.HasSuffix(name, ".key") || strings.Contains(name, "token") {
			secrets++
		}
		return err
	}))
	if secrets != 3 { // two servers' keys and a token
		t.Errorf("there are %d secrets", secrets)
	}
	project := composed(t)
	if prepare := project.Services["prepare"]; prepare.NetworkMode != "none" {
		t.Errorf("prepare has network %q", prepare.NetworkMode)
	}
}

// Each service of compose.yaml finds what prepare.sh makes for it, and sees nothing that it makes
// for another. RabbitMQ has no port without TLS.
func TestComposeFindsWhatIsPrepared(t *testing.T) {
	t.Parallel()
	project, dir := composed(t, "kafka", "shop"), prepared(t)
	folder := map[string]string{} // of prepare.sh, by volume
	for _, v := range project.Services["prepare"].Volumes {
		if name, ok := strings.CutPrefix(v.Target, "/made/"); ok {
			folder[v.Source] = name
		}
	}
	configs := read(t, "deploy/compose/rabbitmq.yaml") + read(t, "deploy/compose/kafka.yaml")
	settings := read(t, "deploy/compose/rabbitmq.conf")
	for name, s := range project.Services {
		text := strings.Join(s.Command, " ")
		for _, value := range s.Environment {
			text += " " + *value
		}
		switch {
		case name == "prepare":
			continue
		case name == "rabbitmq":
			text += settings
		case s.Image == "cdc-relay":
			text += configs
		}
		named := regexp.MustCompile(`/run/secrets/[a-z-]+/[a-z.-]+`).FindAllString(text, -1)
		for _, v := range s.Volumes {
			from, ok := folder[v.Source]
			if !ok {
				continue
			}
			of := map[string]string{"postgres": "postgres", "rabbitmq": "rabbitmq", "init-shop": "shop"}[name]
			of = cmp.Or(of, map[string]string{"cdc-relay": "relay", "cdc-relay-shop": "shop"}[s.Image])
			if from != of || !v.ReadOnly {
				t.Errorf("%s sees %s of prepare.sh: %+v", name, from, v)
			}
			if len(named) == 0 {
				t.Errorf("%s names nothing of %s", name, v.Target)
			}
			for _, path := range named {
				file, ok := strings.CutPrefix(path, v.Target+"/")
				if _, err := os.Stat(filepath.Join(dir, from, file)); !ok || err != nil {
					t.Errorf("%s: nothing makes %s", name, path)
				}
			}
			named = nil
		}
		if named != nil {
			t.Errorf("%s names %v, and has no such volume", name, named)
		}
	}
	if !strings.Contains(settings, "\nlisteners.tcp = none\n") {
		t.Error("RabbitMQ has a port without TLS")
	}
}
