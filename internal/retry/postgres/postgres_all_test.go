//go:build testall

package postgres

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	retrystore "github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// In a database of another encoding every row can be written, and most words be read.
func TestAnotherEncoding(t *testing.T) {
	t.Parallel()
	server := servers.SharedPostgres(t)
	w := newDatabase(t, server, server.DatabaseOf(t, "LATIN1"))
	b := newBench(t, w)
	row := b.row("ключ", 1, 1)
	row.Reason, row.Text, row.Destination = "invalid", `no „ключ\"`, `exchange "ключ", "ü"`
	row.Event.Route.Name = []byte("ключ")
	b.deferRow(row)
	for range 2 { // what was read may be written again
		got := b.runs(all, row.Group)[0].Rows[0]
		equal(t, "key", string(got.Event.Key), "ключ")
		equal(t, "name", string(got.Event.Route.Name), "ключ")
		equal(t, "destination", got.Destination, `exchange "\u043a\u043b\u044e\u0447", "\u00fc"`)
		equal(t, "words", got.Text, `no \u201e\u043a\u043b\u044e\u0447\"`)
		b.must(b.ApplyResults(await.Context(t), []retrystore.Result{{Row: got, Kind: retrystore.Backoff, Reason: got.Reason, Text: row.Text, Destination: got.Destination}}))
	}
}

// The session of a statement without an answer does not end when it is told to. Nothing is written
// until it has. On a server of this package: one session that is stopped has all wait that drop a
// database.
func TestSessionThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	w := newDatabase(t, servers.OwnPostgres(t), "")
	b := newBench(t, w)
	store := New(w.pool, source.BackendPID, b.c)
	row := b.row("k", 1, 1)
	conn, err := w.pool.Acquire(await.Context(t))
	b.must(err)
	session := conn.Hijack()
	t.Cleanup(func() { session.Close(context.Background()) })
	pid := session.PgConn().PID()
	send := func(s syscall.Signal) { b.must(syscall.Kill(int(pid), s)) }
	send(syscall.SIGSTOP)
	thaw := sync.OnceFunc(func() { send(syscall.SIGCONT) })
	t.Cleanup(thaw)
	store.doubtfulSessions[pid] = true
	if err := store.Defer(await.Context(t), []*retrystore.Row{row}); err == nil || !strings.Contains(err.Error(), "do not end") {
		t.Errorf("beside a session that lives: %v", err)
	}
	b.wantWhere("", row)
	thaw()
	// on a busy machine it may take the session longer to end than one statement waits
	await.Until(t, "the row to be written", func() bool { return store.Defer(await.Context(t), []*retrystore.Row{row}) == nil })
	b.wantWhere("deferred", row)
	equal(t, "doubts left", len(store.doubtfulSessions), 0)
}
