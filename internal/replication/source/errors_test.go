package source

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
)

func TestWhatIsFatalWhenConnecting(t *testing.T) {
	refused := errors.New("dial tcp: connection refused")
	code := func(code string) error { return fmt.Errorf("connect: %w", &pgconn.PgError{Code: code}) }
	now, longAgo := time.Now(), time.Now().Add(-2*passwordPatience)
	for _, c := range []struct {
		what   string
		err    error
		ever   bool
		since  time.Time
		reason string // "": wait
	}{
		{"server absent", refused, false, longAgo, ""},
		{"server starting up", code("57P03"), false, longAgo, ""},
		{"wrong password at first", code("28P01"), false, now, ""},
		{"wrong password for a minute", code("28P01"), false, longAgo, "login"},
		{"no line in pg_hba.conf for a minute", code("28000"), false, longAgo, "login"},
		{"wrong password after it worked", code("28P01"), true, longAgo, ""},
		{"no such database", code("3D000"), false, now, "database"},
		{"no free walsender", code("53300"), false, now, "no_sender"},
		{"no free walsender after it worked", code("53300"), true, longAgo, ""},
		{"a right is missing", code("42501"), false, now, "rights"},
	} {
		err := FatalConnect(&Config{}, c.err, c.ever, c.since)
		if c.reason == "" {
			if err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			continue
		}
		if stop := replicationtest.WantStop(t, err, event.ExitFailure, c.reason); stop.Fix == "" {
			t.Errorf("%s: no fix", c.what)
		}
	}
}

func TestRefusedLogin(t *testing.T) {
	refused := fmt.Errorf("connect: %w", &pgconn.PgError{Code: "28P01"})
	for since, want := range map[time.Time]string{
		{}:                                    `PostgreSQL refuses the login of "relay"`,
		time.Now().Add(-2 * passwordPatience): `PostgreSQL refused the login of "relay" for 1m0s`,
	} {
		if stop := replicationtest.WantStop(t, FatalConnect(&Config{URL: "postgres://relay@/"}, refused, false, since), event.ExitFailure, "login"); stop.What != want {
			t.Errorf("%q, want %q", stop.What, want)
		}
	}
}

// A server without TLS is told from one whose certificate is wrong, and from one that was reached
// without TLS behind that.
func TestServerWithoutTLS(t *testing.T) {
	refused := errors.New("failed to connect to `user=relay`: tls error: server refused TLS connection")
	if fix := FixConnect(refused); !strings.Contains(fix, "ssl = on") || !strings.Contains(fix, "sslmode") {
		t.Errorf("the fix is %q", fix)
	}
	if fix := FixConnect(errors.Join(refused, &pgconn.PgError{Code: "57P03"})); fix != "" {
		t.Errorf("the fix for a server that starts up is %q", fix)
	}
}
