package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// The text of a server's error shows no values, whatever stands in it, and names what an operator
// has to know.
func TestErrorsShowNoValues(t *testing.T) {
	for _, tc := range []struct{ code, message, want string }{
		{"22P02", `invalid input syntax for type integer: "secret"`, "invalid input syntax for type integer: … (SQLSTATE"},
		{"22P02", `invalid input syntax for type integer: "a"b secret"`, "invalid input syntax for type integer: … (SQLSTATE"},
		{"22P02", `invalid input syntax for type integer: "{"who": "secret", "and":` + "\n" + `"secret"}"`, "invalid input syntax for type integer: … (SQLSTATE"},
		{"22P02", `invalid input syntax for type integer: "secret`, "ERROR: … (SQLSTATE 22P02)"},
		{"22P02", `ungültige Eingabesyntax für Typ integer: »secret«`, "ERROR: … (SQLSTATE 22P02)"},
		{"22P02", `sintassi non valida: «secret»`, "ERROR: … (SQLSTATE 22P02)"},
		{"22003", `value "secret" is out of range for type integer`, "value … is out of range for type integer"},
		{"22001", `value too long for type character varying(10)`, "value too long for type character varying(10)"},
		{"22021", `invalid byte sequence for encoding "UTF8": 0xe4 0x20`, "invalid byte sequence for encoding …: …"},
		{"P0001", `bad secret`, "ERROR: … (SQLSTATE P0001)"},
		{"P0001", ``, "ERROR: … (SQLSTATE P0001)"},
		{"P0004", `secret is none`, "ERROR: … (SQLSTATE P0004)"},
		{"45000", `bad secret`, "ERROR: … (SQLSTATE 45000)"},
		{"XX000", `bad secret`, "ERROR: … (SQLSTATE XX000)"},
		{"42601", `syntax error at or near "secret"`, "ERROR: … (SQLSTATE 42601)"},
		{"23514", `new row for relation "retry" violates check constraint "amount"`, `new row for relation "retry" violates check constraint "amount"`},
		{"42501", `permission denied for table "retry"`, `permission denied for table "retry"`},
		{"42P01", `relation "cdc_relay.retry" does not exist`, `relation "cdc_relay.retry" does not exist`},
		{"55P03", `canceling statement due to lock timeout`, `canceling statement due to lock timeout`},
		{"57014", `canceling statement due to statement timeout`, `canceling statement due to statement timeout`},
		{"53100", `could not extend file "base/1/2": No space left on device`, `could not extend file "base/1/2": No space left on device`},
		{"25006", `cannot execute INSERT in a read-only transaction`, `cannot execute INSERT in a read-only transaction`},
		{"54000", `index row size 2712 exceeds btree version 4 maximum 2704 for index "x"`, `for index "x"`},
	} {
		server := &pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: tc.code, Message: tc.message, Detail: "Failing row contains (secret)."}
		err := fmt.Errorf("defer rows: %w", redacted{fmt.Errorf("run: %w", server)})
		if text := err.Error(); !strings.Contains(text, tc.want) || strings.Contains(text, "secret") || !strings.Contains(text, tc.code) || !strings.HasPrefix(text, "defer rows: run: ERROR: ") {
			t.Errorf("%s: %s", tc.message, text)
		}
		var again *pgconn.PgError
		if !errors.As(err, &again) || again != server {
			t.Errorf("%s: the server's error is not to be had any more", tc.message)
		}
	}
}

// A user's function raises any text, whatever the SQLSTATE: only the function is named, and what it
// says it is about.
func TestErrorsOfFunctions(t *testing.T) {
	server := &pgconn.PgError{
		Severity: "ERROR", Code: "23514", Message: "bad secret", File: "pl_exec.c", Routine: "exec_stmt_raise",
		Where: "PL/pgSQL function public.audit() line 3 at RAISE\nSQL statement \"SELECT 'secret'\"", SchemaName: "cdc_relay", TableName: "retry", ConstraintName: "amount",
	}
	want := `ERROR: … (SQLSTATE 23514), function public.audit, schema "cdc_relay", table "retry", constraint "amount"; the server's log has its text`
	if text := (redacted{server}).Error(); text != want {
		t.Errorf("%s, want %s", text, want)
	}
	server.File, server.Routine = "execMain.c", "ExecConstraints"
	if text := (redacted{server}).Error(); text != "ERROR: bad secret (SQLSTATE 23514)" {
		t.Errorf("the server's own words are not shown: %s", text)
	}
}
