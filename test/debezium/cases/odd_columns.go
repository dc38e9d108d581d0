package cases

import (
	"fmt"
	"strings"
)

// columnOf is a column, and the values that it has in the rows; the first one where there are no
// more.
type columnOf struct {
	sqlType string
	values  []string
}

// manyColumns is a group of one table with many columns, each of them a header, so that each shows
// its schema and its default.
func manyColumns(name string, setup []string, columns []columnOf, options ...string) Group {
	var types, names, placed []string
	rows := 0
	for i, c := range columns {
		n := fmt.Sprintf("c%d", i)
		types, names, placed = append(types, n+" "+c.sqlType), append(names, n), append(placed, n+":header")
		rows = max(rows, len(c.values))
	}
	all := with(with(plainText, "header.converter", jsonConverter), options...)
	g := Group{Name: name, Profile: Connect, Options: oneTopic(name, with(all, placement, strings.Join(placed, ",")))}
	g.Setup = append(setup, outbox("outbox", "text", types...))
	sql := func(row int) string {
		var values []string
		for _, c := range columns {
			if row >= len(c.values) {
				values = append(values, c.values[0])
			} else {
				values = append(values, c.values[row])
			}
		}
		return insert("outbox", strings.Join(names, ", "), strings.Join(values, ", "))
	}
	for row := range rows {
		g.Cases = append(g.Cases, Case{Name: fmt.Sprintf("row-%d", row+1), SQL: []string{sql(row)}})
	}
	g.End = sql(0)
	return g
}

// oddColumns are types, values and defaults that are rare.
func oddColumns() []Group {
	all := []Group{
		manyColumns("network-and-ranges", nil, []columnOf{
			{"inet", []string{`'10.0.0.1'`, `'10.0.0.1/8'`, `'::1'`, `NULL`}},
			{"cidr", []string{`'10.0.0.0/8'`, `'::/0'`}},
			{"macaddr", []string{`'08:00:2B:01:02:03'`}},
			{"macaddr8", []string{`'08:00:2b:01:02:03:04:05'`}},
			{"int4range", []string{`'[1,5)'`, `'empty'`, `'(,3]'`, `NULL`}},
			{"int8range", []string{`'[1,5]'`}},
			{"numrange", []string{`'[1.50,5)'`}},
			{"daterange", []string{`'[2026-01-01,2026-02-01]'`}},
			{"tsrange", []string{`'[2026-01-01 01:00,2026-02-01]'`}},
			{"tstzrange", []string{`'[2026-01-01 01:00+02,2026-02-01]'`}},
		}),
		manyColumns("digits", nil, []columnOf{
			{"time(0)", []string{`'03:04:05'`, `'24:00:00'`}},
			{"time(1)", []string{`'03:04:05.6'`}},
			{"time(4)", []string{`'03:04:05.6789'`}},
			{"timetz(0)", []string{`'03:04:05+05:30'`, `'23:59:59-15'`}},
			{"timetz(3)", []string{`'03:04:05.670-00:30'`, `'03:04:05.6+00'`}},
			{"timetz", []string{`'24:00:00+00'`, `'00:00:00.000001+14'`}},
			{"timestamp(0)", []string{`'2026-01-02 03:04:05'`, `'1969-12-31 23:59:59'`}},
			{"timestamp(2)", []string{`'2026-01-02 03:04:05.67'`}},
			{"timestamp(4)", []string{`'2026-01-02 03:04:05.6789'`}},
			{"timestamptz(0)", []string{`'2026-01-02 03:04:05+02'`, `'2026-01-02 03:04:00+00'`}},
			{"timestamptz(1)", []string{`'2026-01-02 03:04:05.6+02'`}},
			{"timestamptz(3)", []string{`'2026-01-02 03:04:05.6+02'`, `'2026-01-02 03:04:05+00'`}},
			{"timestamptz(6)", []string{`'2026-01-02 03:04:05.6+02'`}},
		}),
		manyColumns("domain-of-domain", []string{"CREATE DOMAIN d1 AS numeric(8,2)", "CREATE DOMAIN dd AS d1 NOT NULL DEFAULT 1"}, []columnOf{{"dd", []string{"2.50"}}}),
		manyColumns("enums", []string{
			"CREATE TYPE mood AS ENUM ('sad', 'happy')", "ALTER TYPE mood ADD VALUE 'angry' BEFORE 'sad'", `CREATE TYPE odd AS ENUM ('a,b', 'c"d', 'é', '')`, `CREATE TYPE "Mixed Case" AS ENUM ('x')`,
			"CREATE SCHEMA other", "CREATE TYPE other.mood AS ENUM ('elsewhere', 'else')",
		}, []columnOf{
			{"mood DEFAULT 'angry'", []string{`'angry'`, `NULL`, `DEFAULT`}},
			{"odd DEFAULT 'c\"d'", []string{`'a,b'`, `'c"d'`, `''`}},
			{`"Mixed Case" NOT NULL DEFAULT 'x'`, []string{`'x'`}},
			{"other.mood NOT NULL DEFAULT 'else'", []string{`'else'`}},
		}),
	}
	for _, d := range []struct{ name, sqlType, value string }{
		{"numeric", "numeric(8,2)", "1.50"},
		{"timestamp", "timestamp(3)", "'2026-01-02 03:04:05.678'"},
		{"jsonb", "jsonb", `'{"a":1}'`},
		{"bytea", "bytea", `'\x00ff'`},
		{"timestamptz", "timestamptz(3)", "'2026-01-02 03:04:05.6+02'"},
	} {
		all = append(all, manyColumns("domain-of-"+d.name, []string{"CREATE DOMAIN dd AS " + d.sqlType}, []columnOf{{"dd", []string{d.value, "NULL"}}}))
	}
	far := []columnOf{
		{"date", []string{`'4713-01-01 BC'`, `'10000-01-01'`, `'5874897-12-31'`, `'0001-12-31 BC'`, `'1582-10-10'`, `'0099-01-01'`}},
		{"timestamp", []string{`'4713-01-01 00:00:00 BC'`, `'10000-01-01 00:00:00'`, `'294276-12-31 23:59:59.999999'`, `'0001-12-31 23:59:59.5 BC'`, `'1582-10-10'`, `'0099-01-01 00:00:00'`}},
		{"timestamp(3)", []string{`'4713-01-01 00:00:00 BC'`, `'10000-01-01 00:00:00'`, `'294276-12-31 23:59:59.999'`, `'0001-12-31 23:59:59.5 BC'`, `'1582-10-10'`, `'0099-01-01 00:00:00'`}},
		{"timestamptz", []string{`'4713-01-01 00:00:00+00 BC'`, `'10000-01-01 00:00:00+00'`, `'294276-12-31 23:59:59.999999+00'`, `'0001-12-31 23:59:59.5+00 BC'`, `'1582-10-10 00:00:00+00'`, `'0099-01-01 00:00:00+00'`}},
		{"timestamptz(3)", []string{`'4713-01-01 00:00:00+00 BC'`, `'10000-01-01 00:00:00+00'`, `'294276-12-31 23:59:59.999+00'`, `'0001-12-31 23:59:59.5+00 BC'`, `'1582-10-10 00:00:00+00'`, `'0099-01-01 00:00:00+00'`}},
		{"time", []string{`'24:00:00'`, `'00:00:00.000001'`}},
	}
	infinite := []columnOf{{"date", []string{`'infinity'`, `'-infinity'`}}, {"timestamp", []string{`'infinity'`, `'-infinity'`}}, {"timestamp(3)", []string{`'infinity'`, `'-infinity'`}}, {"timestamptz", []string{`'infinity'`, `'-infinity'`}}}
	const mode = "time.precision.mode"
	all = append(all, manyColumns("far-adaptive", nil, far))
	for _, m := range []string{"adaptive_time_microseconds", "isostring", "microseconds", "nanoseconds", "connect"} {
		short := strings.ReplaceAll(m, "adaptive_time_microseconds", "adaptive-time")
		all = append(all, manyColumns("far-"+short, nil, far, mode, m), manyColumns("infinite-"+short, nil, infinite, mode, m))
	}
	numbers := []columnOf{
		{"numeric(5,0)", []string{`12345`, `-1`, `0`}},
		{"numeric(3,5)", []string{`0.00123`, `-0.00001`}},
		{"numeric(38,10)", []string{`1.5`, `1234567890123456789012345678.0000000001`, `-0.0000000001`}},
		{"numeric(100,50)", []string{`0`, `1e49`, `1e-50`}},
		{"numeric(20)", []string{`9223372036854775808`, `-9223372036854775809`, `255`, `128`, `-128`, `-129`}},
		{"real", []string{`1e-45`, `3.4e38`, `1.17549435e-38`, `8388608.5`, `9999999`, `0.001`, `33554432`}},
		{"double precision", []string{`4.9e-324`, `2.2250738585072014e-308`, `9007199254740993`, `1e23`, `9.999999e6`, `2e23`, `8.41e21`}},
	}
	special := []columnOf{{"numeric", []string{`'NaN'`, `'Infinity'`, `'-Infinity'`}}}
	return append(all, manyColumns("numbers", nil, numbers), manyColumns("no-numbers-string", nil, special, "decimal.handling.mode", "string"),
		manyColumns("no-numbers-double", nil, special, "decimal.handling.mode", "double"))
}
