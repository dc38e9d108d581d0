package replication

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// finding is the first line of that name that Check has.
func (b *bench) finding(name string) check.Finding {
	b.t.Helper()
	list, err := check.Run(await.Context(b.t), b.cfg)
	await.Must(b.t, err)
	i := slices.IndexFunc(list, func(f check.Finding) bool { return f.Name == name })
	if i < 0 {
		b.t.Fatalf("there is no line %q in %+v", name, list)
	}
	return list[i]
}

// wantLine compares a line with what it is to be.
func (b *bench) wantLine(level, name string, words ...string) check.Finding {
	b.t.Helper()
	f := b.finding(name)
	if f.Level != level || !hasWords(f.Detail, words) || (f.Fix == "") != (level == check.LevelOK) {
		b.t.Errorf("the line is %+v, want %s with %q", f, level, words)
	}
	return f
}

func hasWords(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// fixed runs the SQL of a fix, restarts the server when the fix says so, and wants the line to be
// ok.
func (b *bench) fixed(p *pgserver.Postgres, f check.Finding) {
	b.t.Helper()
	sql, restart := strings.CutSuffix(f.Fix, ", then restart the server")
	if sql == "" {
		b.t.Fatalf("there is no fix: %+v", f)
	}
	for statement := range strings.SplitSeq(sql, "; ") {
		b.exec(statement)
	}
	if restart {
		if _, err := p.Stop("fast"); err != nil {
			b.t.Fatal(err)
		}
		await.Must(b.t, p.Start(await.Context(b.t)))
		b.reconnect()
	}
	// a setting that is reloaded is in force a moment later
	await.Until(b.t, f.Name+" to be ok after "+f.Fix, func() bool {
		now := b.finding(f.Name)
		return now.Level == check.LevelOK && now.Fix == ""
	})
}

// Several tables are a line each where it matters, and all of a line where it does not.
func TestCheckNamesColumnsAndTypes(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE second (id bigint, payload bytea, extra text)`)
	b.cfg.Tables = append(b.cfg.Tables, decode.Table{Schema: "public", Name: "second", Mapping: b.cfg.Tables[0].Mapping})
	oid := b.text(`SELECT 'second'::regclass::oid::text`)
	b.wantLine(check.LevelOK, "tables", "id text, payload jsonb", fmt.Sprintf("public.second (OID %s: id bigint, payload bytea)", oid))
	b.wantLine(check.LevelOK, "max_event_bytes", "not set: a row takes about three times its size")
	b.cfg.MaxEventBytes = 16 << 20
	b.wantLine(check.LevelOK, "max_event_bytes", "more than 16 MiB becomes a dead letter")
}

// What is found most often of all: nobody listens, the password is wrong, the role may not
// replicate or not use the schema. Each has a fix that can be copied, and nothing is said that was
// not asked.
func TestCheckOfAConnectionThatFails(t *testing.T) {
	t.Parallel()
	role, as := newRole(t, "")
	b := newBench(t, servers.OwnPostgres(t).Database(t))
	own := b.cfg.URL
	b.cfg.URL = as(b.url)
	if f := b.wantLine(check.LevelFail, "schema", "no right to CREATE"); !strings.Contains(f.Fix, "--role '"+role+"'") {
		t.Errorf("%+v", f)
	}
	b.exec("GRANT CREATE ON DATABASE " + b.text("SELECT current_database()::text") + " TO " + role)
	b.wantLine(check.LevelWarn, "schema", "the first start creates it")
	b.wantLine(check.LevelFail, "publication", "may not create it") // the table is another's
	b.exec("ALTER TABLE outbox OWNER TO " + role)
	b.wantLine(check.LevelWarn, "publication", "the first start creates it")
	b.exec("ALTER TABLE outbox OWNER TO CURRENT_USER")
	b.cfg.URL = own
	b.init(setup.InitOptions{Role: role})
	b.cfg.URL = as(b.url)
	f := b.finding("replication connection")
	if f.Level != check.LevelFail || !strings.Contains(f.Fix, source.QuoteName(role)) {
		t.Fatalf("%+v", f)
	}
	b.fixed(nil, f)

	b.exec("REVOKE UPDATE ON cdc_relay.slots FROM " + role)
	if f := b.finding("schema"); f.Level != check.LevelFail || !strings.Contains(f.Fix, "--role '"+role+"'`") {
		t.Errorf("%+v", f)
	}
	b.wantLine(check.LevelWarn, "slot", "cannot be checked") // and not that no relay has used it

	u, err := url.Parse(b.url)
	await.Must(t, err)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	await.Must(t, err)
	gone.Close()
	u.Host = gone.Addr().String()
	b.cfg.URL = u.String()
	if f := b.finding("postgres"); f.Level != check.LevelFail || !strings.Contains(f.Fix, "source.url") {
		t.Errorf("%+v", f)
	}
}
