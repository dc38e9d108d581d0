package replication

import (
	"reflect"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
)

// Rows keep the types that they were written with, whatever has become of their columns until they
// are read.
func TestShapeOfRowsBeforeAnAlteration(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]string{
		"as it was": `SELECT 1`,
		"altered":   `ALTER TABLE outbox ALTER mood TYPE text, ALTER price TYPE text`,
		"renamed":   `ALTER TABLE outbox RENAME mood TO m; ALTER TABLE outbox RENAME price TO p`,
		"dropped":   `ALTER TABLE outbox DROP mood, DROP price`,
		"no table":  `DROP TABLE outbox`,
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(`CREATE TYPE moods AS ENUM ('sad', 'happy')`)
			b.exec(`CREATE DOMAIN amount AS numeric(9, 2)`)
			b.exec(`CREATE DOMAIN prices AS amount CHECK (VALUE > 0)`)
			b.exec(`ALTER TABLE outbox ADD mood moods, ADD price prices, ADD size varchar(7) NOT NULL DEFAULT 'xs'`)
			shape := &event.Shape{Schema: "public", Table: "outbox"}
			var oid uint32
			if err := b.conn.QueryRow(await.Context(t), `SELECT 'outbox'::regclass::oid`).Scan(&oid); err != nil {
				t.Fatal(err)
			}
			for _, column := range []string{"mood", "price", "size"} {
				c := event.ColumnShape{Name: column}
				err := b.conn.QueryRow(await.Context(t), `SELECT atttypid, atttypmod FROM pg_attribute WHERE attrelid = $1 AND attname = $2`, oid, column).
					Scan(&c.TypeOID, &c.Typmod)
				if err != nil {
					t.Fatal(err)
				}
				shape.Columns = append(shape.Columns, c)
			}
			moods := shape.Columns[0].TypeOID
			if _, err := b.conn.Exec(await.Context(t), alter); err != nil {
				t.Fatal(err)
			}
			if err := publication.CompleteShape(await.Context(t), b.conn, shape, oid); err != nil {
				t.Fatal(err)
			}
			size := event.ColumnShape{Name: "size", TypeOID: pgtype.VarcharOID, Typmod: 7 + 4}
			if name != "no table" {
				extraSmall := "'xs'::character varying"
				size.NotNull, size.Default = true, &extraSmall
			}
			want := []event.ColumnShape{
				{Name: "mood", TypeOID: moods, Typmod: -1, Labels: []string{"sad", "happy"}},
				{Name: "price", TypeOID: pgtype.NumericOID, Typmod: 9<<16 | 2 + 4},
				size,
			}
			if !reflect.DeepEqual(shape.Columns, want) {
				t.Errorf("%+v, want %+v", shape.Columns, want)
			}
		})
	}
}
