package retry

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// The text of a server's error shows no values, whatever stands in it, and names what an operator has to know.
func TestErrorsShowNoValues(t *testing.T) {
	for _, tc := range []struct{ code, message, want string }{
		{"22P02", `invalid input syntax for type integer: "secret"`, "invalid input syntax for type integer: …"},
		{"22003", `value "secret" is out of range for type "secret"`, "value … is out of range for type …"},
		{"22021", `invalid byte sequence for encoding "UTF8": 0xe4 0x20`, "invalid byte sequence for encoding …: …"},
		{"23514", `new row for relation "retry" violates check constraint "amount"`, `new row for relation "retry" violates check constraint "amount"`},
		{"42501", `permission denied for table "retry"`, `permission denied for table "retry"`},
	} {
		server := &pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: tc.code, Message: tc.message, Detail: "Failing row contains (secret)."}
		err := fmt.Errorf("park rows: %w", discreet{fmt.Errorf("run: %w", server)})
		if text := err.Error(); !strings.Contains(text, tc.want) || strings.Contains(text, "secret") || !strings.Contains(text, tc.code) {
			t.Errorf("%s: %s", tc.message, text)
		}
		var again *pgconn.PgError
		if !errors.As(err, &again) || again != server {
			t.Errorf("%s: the server's error is not to be had any more", tc.message)
		}
	}
}
