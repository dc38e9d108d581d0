package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql

	"github.com/cdc-relay/cdc-relay/outbox"
)

type order struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
}

// The order and the event that tells about it are committed together, or neither is.
func ExampleWrite() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	placed := order{ID: "42", Total: 1250}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id, total) VALUES ($1, $2)", placed.ID, placed.Total); err != nil {
			return err
		}
		return outbox.Write(ctx, tx, outbox.Event{Aggregate: "order", Key: placed.ID, Type: "created", Payload: placed})
	})
	if err != nil {
		log.Fatal(err)
	}

	var routingKey, payload string
	err = pool.QueryRow(ctx, "SELECT aggregatetype || '.' || type, payload FROM outbox WHERE aggregateid = '42'").Scan(&routingKey, &payload)
	fmt.Println(routingKey, payload, err)
	// Output: order.created {"id": "42", "total": 1250} <nil>
}

func ExampleWriteSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback() // does nothing after Commit

	if _, err := tx.ExecContext(ctx, "UPDATE orders SET total = 0 WHERE id = $1", "43"); err != nil {
		log.Fatal(err)
	}
	err = outbox.WriteSQL(ctx, tx,
		outbox.Event{Aggregate: "order", Key: "43", Type: "cancelled", Payload: order{ID: "43"}, Headers: map[string]string{"tenant": "acme"}},
		outbox.Event{Aggregate: "refund", Key: "43", Type: "requested", Payload: map[string]int{"amount": 1250}},
	)
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}

	var events int
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM outbox WHERE aggregateid = '43'").Scan(&events)
	fmt.Println(events, "events", err)
	// Output: 2 events <nil>
}

// The customer is gone, and so is what a compacted topic has of it. Without the word it would not
// be: a payload that was forgotten is refused.
func ExampleTombstone() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	removed := outbox.Event{Aggregate: "customer", Key: "7", Type: "removed"}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		fmt.Println(outbox.Write(ctx, tx, removed))
		removed.Payload = outbox.Tombstone
		return outbox.Write(ctx, tx, removed)
	})
	fmt.Println(err)
	// Output:
	// outbox: invalid event (1 of 1): payload: it is nil; for no body use outbox.Tombstone
	// <nil>
}

// The event is in the WAL of the transaction and in no table. It is for a relay with
// source.message_prefix: outbox.
func ExampleEmit() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE orders SET total = total + 1"); err != nil {
			return err
		}
		return outbox.Emit(ctx, tx, outbox.Event{Aggregate: "catalogue", Type: "repriced", Payload: map[string]int{"by": 1}})
	})
	fmt.Println(err)
	// Output: <nil>
}

// An outbox of your own: a table in another schema, with other columns and without headers.
func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	events, err := outbox.New(outbox.Config{
		Table: "shop.events",
		Columns: outbox.Columns{
			Key:     "event_key",
			Payload: "body",
			Headers: outbox.NoColumn,
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, events.Schema()); err != nil {
		log.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return events.Write(ctx, tx, outbox.Event{Aggregate: "order", Key: "44", Type: "shipped", Payload: []string{"box"}})
	})
	if err != nil {
		log.Fatal(err)
	}

	var body string
	err = pool.QueryRow(ctx, "SELECT body FROM shop.events WHERE event_key = '44'").Scan(&body)
	fmt.Println(body, err)
	// Output: ["box"] <nil>
}

func ExampleSchema() {
	fmt.Print(outbox.Schema())
	// Output:
	// CREATE TABLE IF NOT EXISTS "outbox" (
	//     "id" uuid PRIMARY KEY,
	//     "aggregatetype" text NOT NULL,
	//     "aggregateid" text NOT NULL,
	//     "type" text NOT NULL,
	//     "payload" jsonb,
	//     "headers" jsonb,
	//     "traceparent" text,
	//     "created_at" timestamptz NOT NULL DEFAULT clock_timestamp(),
	//     "tx" xid8 DEFAULT pg_current_xact_id()
	// );
	// DO $schema$ BEGIN
	//     IF EXISTS (SELECT FROM pg_attribute
	//             JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
	//             WHERE attrelid = '"outbox"'::regclass AND attname = 'tx'
	//                 AND atttypid = 'xid8'::regtype
	//                 AND pg_get_expr(adbin, adrelid) LIKE '%pg_current_xact_id()%')
	//         AND NOT EXISTS (SELECT FROM pg_trigger
	//             WHERE tgrelid = '"outbox"'::regclass AND tgname = 'zz_cdc_relay_tx')
	//     THEN
	//         IF NOT EXISTS (SELECT FROM pg_index
	//                 JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
	//                 WHERE indrelid = '"outbox"'::regclass AND attname = 'tx' AND indpred IS NULL)
	//         THEN
	//             CREATE INDEX ON "outbox" (tx);
	//         END IF;
	//         CREATE OR REPLACE FUNCTION "cdc_relay_outbox_set_tx"()
	//             RETURNS trigger LANGUAGE plpgsql AS
	//             $$ BEGIN NEW."tx" := pg_catalog.pg_current_xact_id(); RETURN NEW; END $$;
	//         ALTER FUNCTION "cdc_relay_outbox_set_tx"() OWNER TO CURRENT_USER;
	//         CREATE TRIGGER zz_cdc_relay_tx BEFORE INSERT ON "outbox" FOR EACH ROW
	//             WHEN (NEW.tx IS DISTINCT FROM pg_current_xact_id())
	//             EXECUTE FUNCTION "cdc_relay_outbox_set_tx"();
	//         ALTER TABLE "outbox" ENABLE ALWAYS TRIGGER zz_cdc_relay_tx;
	//     END IF;
	// END $schema$;
}

// An event that can never be delivered is refused before the database is asked: the transaction can
// go on.
func ExampleErrInvalid() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)

	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		err := outbox.Write(ctx, tx, outbox.Event{Aggregate: "order", Key: "45", Type: "created", Payload: order{ID: "45"}, Headers: map[string]string{"x-retry-count": "1"}})
		if errors.Is(err, outbox.ErrInvalid) {
			fmt.Println(err)
			return nil
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// outbox: invalid event (1 of 1): header "x-retry-count" is reserved: the relay would drop it
	// <nil>
}
