//go:build testall

package postgres

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// In a database of another encoding every row can be written, and most words be read.
func TestAnotherEncoding(t *testing.T) {
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
		b.must(b.Apply(await.Context(t), []store.Result{{Row: got, Kind: store.Backoff, Reason: got.Reason, Text: row.Text, Destination: got.Destination}}))
	}
}
