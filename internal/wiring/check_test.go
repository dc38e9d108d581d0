package wiring

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// What a start makes is missing beside a relay that runs.
func TestFindingsBesideARelay(t *testing.T) {
	found := []sink.Finding{{Name: "exchange", OK: true, Detail: "will be declared", Running: &sink.Finding{Name: "exchange", Detail: "404", Fix: "declare it"}}, {Name: "broker", OK: true}}
	for beside, want := range map[bool]check.Finding{
		false: {Name: "exchange", Level: check.LevelOK, Detail: "will be declared"},
		true:  {Name: "exchange", Level: check.LevelFail, Detail: "404", Fix: "declare it"},
	} {
		if got := brokerFindings(found, beside); len(got) != 2 || got[0] != want || got[1].Level != check.LevelOK {
			t.Errorf("beside a relay %t: %+v, want %+v", beside, got, want)
		}
	}
}

// A key's events are split by what differs among them, and not by what their key consists of.
func TestTemplatesThatSplitAKey(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		sink, ordering string
		level          string
		fix            string
	}{
		{`{rabbitmq: {exchange: events}}`, "key", "ok", ""},
		{`{rabbitmq: {exchange: "e.{aggregate}.{key}"}}`, "key", "ok", ""},
		{`{rabbitmq: {exchange: events, routing_key: "{type}"}}`, "key", "ok", ""},
		{`{rabbitmq: {exchange: "e.{type}"}}`, "key", "warn", `sink.rabbitmq.exchange: "e";`},
		{`{rabbitmq: {exchange: "e.{type}"}}`, "pipelined", "warn", `sink.rabbitmq.exchange: "e";`},
		{`{rabbitmq: {exchange: "e.{type}"}}`, "none", "ok", ""},
		{`{rabbitmq: {exchange: "e.{aggregate}"}}`, "commit", "warn", `sink.rabbitmq.exchange: "e";`},
		{`{kafka: {topic: "outbox.event.{aggregate}"}}`, "key", "ok", ""},
		{`{kafka: {topic: "{aggregate}.{type}.events"}}`, "key", "warn", `sink.kafka.topic: "{aggregate}.events";`},
		{`{kafka: {topic: "{id}"}}`, "key", "warn", `sink.kafka.topic: "outbox.events";`},
		{`{kafka: {topic: "t.{column:tenant}"}}`, "key", "warn", `sink.kafka.topic: "t";`},
	} {
		conf := configured(t, c.sink, "")
		conf.Delivery.Ordering = c.ordering
		found := checkOrdering(conf)
		if len(found) != 1 || found[0].Name != "ordering" || found[0].Level != c.level || !strings.HasPrefix(found[0].Fix, c.fix) || found[0].Detail == "" {
			t.Errorf("%s with ordering %s: %+v", c.sink, c.ordering, found)
		}
	}
	if found := checkOrdering(configured(t, `{stdout: {}}`, "")); len(found) != 0 {
		t.Errorf("stdout has no template: %+v", found)
	}
}

// With a profile the topics are Debezium's, by routes that the relay does not choose: there is
// nothing to fix, and the template's keys are refused there. A constant topic is not the only one:
// values that the expression does not match have their own.
func TestOrderingBehindDebezium(t *testing.T) {
	t.Chdir(t.TempDir())
	const constant = `"route.topic.replacement": all, "route.topic.regex": "order"`
	for _, c := range []struct{ sink, profile, options, ordering, detail string }{
		{"kafka", "debezium-connect", "", "commit", "as behind Debezium: events keep the order of their commits within each partition,"},
		{"kafka", "debezium-connect", constant, "commit", "as behind Debezium: events keep the order of their commits within each partition,"},
		{"kafka", "debezium-server", "", "key", "the events of a key keep their order within each partition,"},
		{"rabbitmq", "debezium-server", "", "commit", "as behind Debezium: events keep the order of their commits within each exchange,"},
		{"rabbitmq", "debezium-server", "", "none", "none is kept"},
	} {
		conf := configured(t, fmt.Sprintf(`{%s: {}, compat: {profile: %s, options: {"topic.prefix": shop, %s}}}`, c.sink, c.profile, c.options), "")
		conf.Delivery.Ordering = c.ordering
		found := checkOrdering(conf)
		if len(found) != 1 || found[0].Level != "ok" || found[0].Fix != "" || !strings.HasPrefix(found[0].Detail, c.detail) {
			t.Errorf("%+v: %+v", c, found)
		}
	}
}

// A question about the tables that is not answered keeps no relay from delivering.
func TestTablesThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(await.Context(t), "postgres://127.0.0.1:1/shop?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	core, logs := observer.New(zap.WarnLevel)
	c := &config.Config{Retention: config.Retention{Mode: config.RetentionDelete}}
	c.Source.Tables = []config.Table{{Schema: "public", Name: "outbox", Outbox: config.Default().Outbox}}
	if err := CheckRetained(await.Context(t), c, pool, zap.New(core)); err != nil || logs.Len() != 1 {
		t.Errorf("it ends with %v, and logs %v", err, logs.All())
	}
}

// certificate writes a certificate that is valid until the time given, and its key.
func certificate(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "relay"}, NotBefore: until.Add(-90 * 24 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, of, of, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, 0o644, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		write(t, 0o600, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
}

func write(t *testing.T, mode os.FileMode, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

// What is wrong on the admin side is a warning with its fix, and never a failure: the relay
// delivers without it.
func TestCheckAdmin(t *testing.T) {
	now := time.Now()
	long := strings.Repeat("t", 16)
	const day = 24 * time.Hour
	valid, validKey := certificate(t, now.Add(30*day))
	soon, soonKey := certificate(t, now.Add(7*day-time.Minute))
	expired, expiredKey := certificate(t, now.Add(-time.Minute))
	future, futureKey := certificate(t, now.Add(91*day))
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file, missing := write(t, 0o600, "x"), filepath.Join(t.TempDir(), "missing", "x")
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	token := func(path string) string { return "tokens: [{name: ops, role: operate, value: '${file:" + path + "}'}]" }

	for _, c := range []struct{ name, admin, level, finding, detail, fix string }{
		{"nothing", "", "ok", nameTokens, "the API answers nobody", ""},
		{"a socket alone", "socket: " + socket, "ok", nameTokens, "answers on admin.socket alone", ""},
		{"a token", token(write(t, 0o640, long)), "ok", nameTokens, "1 can be used", ""},
		{"a token without a file", token(missing), "warn", nameTokens, missing + ` of token "ops" is missing: ` + "`cdc-relay init`", ""},
		{"a token for everybody", token(write(t, 0o604, long)), "warn", nameTokens, "chmod o-rwx", ""},
		{"an empty token", token(write(t, 0o600, "\n")), "warn", nameTokens, `"ops" is empty`, ""},
		{"a short token", token(write(t, 0o600, " "+long[1:]+"\n")), "warn", nameTokens, "fewer than 16", ""},
		{"a token that is a pipe", token(fifo), "warn", nameTokens, "is not a regular file", ""},
		{"a socket", "socket: " + socket, "ok", nameSocket, socket, ""},
		{"a socket to be", "socket: " + socket + "2", "ok", nameSocket, socket + "2", ""},
		{"a file for a socket", "socket: " + file, "warn", nameSocket, file + " exists and is not a socket", "move it away"},
		{"a socket nowhere", "socket: " + missing, "warn", nameSocket, "the directory of " + missing + " is missing", "install -d"},
		{"a certificate", "tls: {cert: " + valid + ", key: " + validKey + "}", "ok", nameCertificate, valid, ""},
		{"a certificate that ends", "tls: {cert: " + soon + ", key: " + soonKey + "}", "warn", nameCertificate, "expires on", ""},
		{"a certificate that has ended", "tls: {cert: " + expired + ", key: " + expiredKey + "}", "warn", nameCertificate, "has expired on", ""},
		{"a certificate to come", "tls: {cert: " + future + ", key: " + futureKey + "}", "warn", nameCertificate, "is valid only from", ""},
		{"another key", "tls: {cert: " + valid + ", key: " + soonKey + "}", "warn", nameCertificate, "that belong together", ""},
		{"a key for everybody", "tls: {cert: " + valid + ", key: " + write(t, 0o604, "x") + "}", "warn", nameCertificate, "chmod o-rwx", ""},
		{"no certificate", "tls: {cert: " + missing + "}", "warn", nameCertificate, "admin.tls.cert: cannot use", ""},
		{"no authority", "tls: {cert: " + valid + ", key: " + validKey + ", ca: " + file + "}", "warn", nameCertificate, "admin.tls.ca: no certificate", ""},
	} {
		path := write(t, 0o600, "source: {url: postgres://h/d}\nsink: {stdout: {}}\nadmin: {"+c.admin+"}\n")
		loaded, err := config.Load(path, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		found := check.Finding{}
		for _, f := range checkAdmin(&loaded.Admin, now) {
			if f.Level == check.LevelFail {
				t.Errorf("%s: fails: %v", c.name, f)
			}
			if f.Name == c.finding {
				found = f
			}
		}
		if found.Level != c.level || !strings.Contains(found.Detail, c.detail) || !strings.Contains(found.Fix, c.fix) {
			t.Errorf("%s: %+v, want %s, %q, fix %q", c.name, found, c.level, c.detail, c.fix)
		}
	}
}

// One broken token is named, and does not hide that the others are good.
func TestCheckNamesEachBrokenToken(t *testing.T) {
	c := &config.Admin{Tokens: []config.Token{{Name: "a"}, {Name: "b"}}}
	if found := checkAdmin(c, time.Now()); len(found) != 2 || !strings.Contains(found[0].Detail, `"a"`) || !strings.Contains(found[1].Detail, `"b"`) {
		t.Errorf("%+v", found)
	}
}

// Tokens that cross a network without TLS are a warning.
func TestTokensInClear(t *testing.T) {
	tokens := []config.Token{{Name: "ops", Role: config.RoleOperate}}
	for name, c := range map[string]struct {
		admin config.Admin
		level string
	}{
		"everywhere":      {config.Admin{Listen: "0.0.0.0:8464", Tokens: tokens}, check.LevelWarn},
		"no host":         {config.Admin{Listen: ":8464", Tokens: tokens}, check.LevelWarn},
		"an address":      {config.Admin{Listen: "10.0.0.7:8464", Tokens: tokens}, check.LevelWarn},
		"this machine":    {config.Admin{Listen: "127.0.0.1:8464", Tokens: tokens}, check.LevelOK},
		"IPv6":            {config.Admin{Listen: "[::1]:8464", Tokens: tokens}, check.LevelOK},
		"TLS":             {config.Admin{Listen: "0.0.0.0:8464", Tokens: tokens, TLS: config.AdminTLS{Cert: "c"}}, check.LevelOK},
		"nothing to read": {config.Admin{Listen: "0.0.0.0:8464"}, ""},
	} {
		found := checkAdminListen(&c.admin)
		if c.level == "" {
			if found != nil {
				t.Errorf("%s: found %+v", name, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Level != c.level || (c.level == check.LevelWarn) != strings.Contains(found[0].Fix, "tls: {cert:") {
			t.Errorf("%s: found %+v, want %s", name, found, c.level)
		}
	}
}
