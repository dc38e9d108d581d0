//go:build testall

package replication

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// Tables, or the prefix, may be configured later: what is remembered of the one does not stand in
// the way of the other.
func TestMessagesThenATable(t *testing.T) {
	b := shared(t)
	b.relayMessages()
	tables := b.cfg.Tables
	b.cfg.Tables = nil
	r := b.run()
	r.waitPhase(survey.Streaming)
	b.exec(message("a", "1"))
	r.waitSeen("a")
	r.endClean()
	b.exec(`ALTER PUBLICATION p ADD TABLE outbox`)
	b.cfg.Tables = tables
	b.goesOn("b")
	b.cfg.Tables = nil
	b.exec(message("c", "1"))
	r = b.run()
	r.waitSeen("c")
	r.endClean()
}

// The server converts rows to UTF-8, and does not convert messages: check says so, and what is not
// UTF-8 is a fault, not another text.
func TestMessagesOfAnotherEncoding(t *testing.T) {
	t.Parallel()
	server := servers.OwnPostgres(t)
	ctx := await.Context(t)
	name := fmt.Sprintf("latin%d", time.Now().UnixNano())
	admin, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, `CREATE DATABASE `+name+` TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.DropDatabase(await.Context(t), name); err != nil {
			t.Error(err)
		}
	})
	b := newBench(t, server.URL(name))
	b.relayMessages()
	list, err := check.Run(ctx, b.cfg)
	if err != nil || !slices.ContainsFunc(list, func(f check.Finding) bool {
		return f.Name == "messages" && f.Level == check.LevelWarn && strings.Contains(f.Detail, "LATIN1") && strings.Contains(f.Fix, "convert_to")
	}) {
		t.Errorf("check does not warn: %+v, %v", list, err)
	}
	r := b.run()
	r.waitPhase(survey.Streaming)
	// this connection's, whose text the server converts to the database's
	b.exec(`SET client_encoding = 'UTF8'`)
	const text = `{"id": "café", "key": "1", "payload": {}}`
	b.exec(`SELECT pg_logical_emit_message(true, 'orders', '` + text + `')`)
	b.exec(`SELECT pg_logical_emit_message(true, 'orders', convert_to('` + text + `', 'UTF8'))`)
	r.waitSeen("café")
	r.endClean()
	first := b.current().All()[0]
	if want := fmt.Sprintf(`{"message:hex":"%x"}`, strings.ReplaceAll(text, "é", "\xe9")); first.Raw != want || !strings.Contains(first.Fault, "convert_to") {
		t.Errorf("got %+v, want raw %s", first, want)
	}
}
