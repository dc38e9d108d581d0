package cases

import (
	"fmt"
	"strings"
)

// This file makes tables and rows for every type of key and payload.

// outbox is an outbox table with a payload of a type, and more columns.
func outbox(name, payload string, more ...string) string {
	columns := append([]string{"id uuid PRIMARY KEY", "aggregatetype text NOT NULL", "aggregateid text NOT NULL", "type text NOT NULL", "payload " + payload}, more...)
	return fmt.Sprintf("CREATE TABLE %s (%s)", name, strings.Join(columns, ", "))
}

// keyed is an outbox table with a key of a type.
func keyed(name, key string) string {
	return fmt.Sprintf("CREATE TABLE %s (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid %s, type text NOT NULL, payload text)", name, key)
}

// row inserts a payload given in SQL.
func row(table, payload string) string {
	return insert(table, "payload", payload)
}

// insert inserts a row with values for more columns: names with commas, values in SQL.
func insert(table, columns, values string) string {
	return fmt.Sprintf("INSERT INTO %s (id, aggregatetype, aggregateid, type, %s) VALUES ('{id}', '{route}', 'order-1', 'OrderPlaced', %s)", table, columns, values)
}

// key inserts a key given in SQL.
func key(table, key string) string {
	return fmt.Sprintf("INSERT INTO %s VALUES ('{id}', '{route}', %s, 'OrderPlaced', 'some text')", table, key)
}

// typed is a column type and values for it, in SQL.
type typed struct {
	name   string // of the case
	column string
	values []string
}

// control are the characters that JSON escapes, and some that it need not.
const control = `E'quote " backslash \\ slash / tab \t line \n return \r feed \f back \b one \x01 unit \x1f del \x7f <a href="x">&amp;</a>'`

const unicode = `U&'\00E9\00DF \4F60\597D \+01F600 \2028\2029 \FEFF \00A0 \FFFD'`

// payloads are the types of payloads. What an option of the connector renders otherwise is in
// modes, too.
var payloads = append([]typed{
	{"jsonb", "jsonb", []string{`'{"b": 1, "a": {"c": [1, 2.50, true, null]}, "a2": "é \"q\" \\ \u0001"}'`, `'[1, 2]'`, `'"text"'`, `'17.0'`, `'true'`, `'null'`}},
	{"json", "json", []string{`'{ "b" : 1,"b":2 , "a":"x" }'`, `' []'`}},
	{"text", "text", []string{`'plain'`, `'{"a": 1}'`, `' '`}},
	{"text-not-null", "text NOT NULL", []string{`'plain'`}},
	{"text-default", `text NOT NULL DEFAULT 'a "quoted" default'`, []string{`'plain'`}},
	{"text-optional-default", "text DEFAULT 'optional'", []string{`'plain'`, `NULL`}},
	{"empty", "text", []string{`''`}},
	{"null", "text", []string{`NULL`}},
	{"unicode", "text", []string{unicode}},
	{"control", "text", []string{control}},
	{"varchar", "varchar(40)", []string{`'forty'`}},
	{"char", "char(8)", []string{`'ab'`}},
	{"bytea", "bytea", []string{`'\x00ff10deadbeef'`, `'\x'`, `NULL`}},
	{"uuid", "uuid", []string{`'10711fa5-0000-4000-8000-00000000000f'`}},
	{"boolean", "boolean", []string{`true`, `false`}},
	{"boolean-default", "boolean NOT NULL DEFAULT true", []string{`false`}},
	{"smallint", "smallint", []string{`-32768`}},
	{"integer", "integer", []string{`2147483647`}},
	{"integer-default", "integer NOT NULL DEFAULT 42", []string{`1`}},
	{"bigint", "bigint", []string{`9223372036854775807`, `NULL`}},
	{"real", "real", []string{`0.1`, `16777216`, `1e7`, `1.5e-5`, `3.4028235e38`, `'-0'`, `1e10`, `123456.7`}},
	{"double", "double precision", []string{`0.1`, `100`, `1e7`, `1e-3`, `9.99e-4`, `1.7976931348623157e308`, `5e-324`, `'-0'`, `123456789.125`, `2e-3`, `1e21`, `0.3::float8 + 0.6`}},
	{"enum", "mood", []string{`'happy'`}},
}, modes...)

// modes are the types whose form an option of the connector decides.
var modes = []typed{
	{"numeric-scale", "numeric(10,2)", []string{`1.10`, `-12345678.90`, `0`}},
	{"numeric", "numeric", []string{`1.10`, `1e10`, `-0.000001`}},
	{"date", "date", []string{`'2026-01-02'`, `'1969-12-31'`}},
	{"time", "time", []string{`'03:04:05.678901'`}},
	{"time-millis", "time(3)", []string{`'03:04:05.678'`}},
	{"timetz", "timetz", []string{`'03:04:05.678901+02'`}},
	{"timestamp", "timestamp", []string{`'2026-01-02 03:04:05.678901'`, `'1969-12-31 23:59:59.999999'`}},
	{"timestamp-millis", "timestamp(3)", []string{`'2026-01-02 03:04:05.678'`}},
	{"timestamptz", "timestamptz", []string{`'2026-01-02 03:04:05.678901+02'`, `'2026-01-02 03:04:00+00'`, `'2026-01-02 03:04:05.1+00'`, `'1969-12-31 23:59:59.12+00'`}},
}

// keys are the types of keys.
var keys = []typed{
	{"key-text", "text NOT NULL", []string{`'10711fa5'`}},
	{"key-varchar", "varchar(20) NOT NULL", []string{`'10711fa5'`}},
	{"key-optional", "text", []string{`'10711fa5'`}},
	{"key-default", "text NOT NULL DEFAULT 'nobody'", []string{`'10711fa5'`}},
	{"key-null", "text", []string{`NULL`}},
	{"key-empty", "text", []string{`''`}},
	{"key-unicode", "text", []string{unicode}},
	{"key-control", "text", []string{control}},
	{"key-uuid", "uuid NOT NULL", []string{`'10711fa5-0000-4000-8000-00000000000f'`}},
	{"key-integer", "integer NOT NULL", []string{`42`}},
	{"key-bigint", "bigint NOT NULL", []string{`9223372036854775807`}},
	{"key-boolean", "boolean NOT NULL", []string{`true`}},
	{"key-jsonb", "jsonb NOT NULL", []string{`'{"tenant": "a"}'`}},
	{"key-bytea", "bytea NOT NULL", []string{`'\x00ff10'`}},
	{"key-numeric", "numeric(10,2) NOT NULL", []string{`12.30`}},
	{"key-timestamp", "timestamp NOT NULL", []string{`'2026-01-02 03:04:05.678901'`}},
	{"key-timestamptz", "timestamptz NOT NULL", []string{`'2026-01-02 03:04:05.678901+02'`}},
	{"murmur2", "text NOT NULL", []string{`'1'`, `'2'`, `'21'`, `'foobar'`, `'a-little-bit-long-string'`, `'a-little-bit-longer-string'`, `'lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8'`, `'abc'`}},
}

// ofTypes are the tables and cases for some types of payloads and keys. Tables are named by their
// cases.
func ofTypes(payloads, keys []typed) (setup, tables []string, all []Case) {
	setup = []string{"CREATE TYPE mood AS ENUM ('sad', 'happy')", outbox("outbox", "jsonb")}
	tables = []string{"outbox"}
	add := func(t typed, create, insert func(string, string) string) {
		table := strings.ReplaceAll(t.name, "-", "_") + "_t"
		setup, tables = append(setup, create(table, t.column)), append(tables, table)
		c := Case{Name: t.name}
		for _, v := range t.values {
			c.SQL = append(c.SQL, insert(table, v))
		}
		all = append(all, c)
	}
	for _, t := range payloads {
		add(t, func(name, column string) string { return outbox(name, column) }, row)
	}
	for _, t := range keys {
		add(t, keyed, key)
	}
	return setup, tables, all
}

// transactions are the cases about what is a row of the outbox at all.
func transactions() (setup, tables []string, all []Case) {
	setup = []string{
		`CREATE TABLE parted (id uuid NOT NULL, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb,
				at date NOT NULL, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)`,
		`CREATE TABLE parted_2025 PARTITION OF parted FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')`,
		`CREATE TABLE parted_2026 PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')`,
	}
	all = []Case{
		{Name: "insert-then-delete", SQL: []string{row("outbox", `'{"gone": true}'`) + "; DELETE FROM outbox WHERE id = '{id}'"}},
		{Name: "update-and-delete", SQL: []string{
			row("outbox", `'{"kept": 1}'`),
			`UPDATE outbox SET payload = '{"changed": 1}' WHERE aggregatetype = '{route}'`,
			`DELETE FROM outbox WHERE aggregatetype = '{route}'`,
		}},
		{Name: "rolled-back", SQL: []string{"DO $$ BEGIN " + row("outbox", `'{"never": true}'`) + "; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END $$"}},
		{Name: "two-in-one-transaction", SQL: []string{row("outbox", `'{"n": 1}'`) + "; " + strings.Replace(row("outbox", `'{"n": 2}'`), "'{id}'", "md5('{id}')::uuid", 1)}},
		{Name: "partitioned-table", SQL: []string{insert("parted", "payload, at", `'{"a": 1}', '2025-05-05'`), insert("parted", "payload, at", `'{"a": 2}', '2026-05-05'`)}},
		{Name: "one-megabyte", SQL: []string{row("outbox", `jsonb_build_object('text', repeat('0123456789', 100000))`)}},
	}
	return setup, []string{"parted"}, all
}
