// What an error of a connection means: whether the relay ends or waits, what the operator does
// about it, and its text for the log. A relay waits for a server that is down, but must not wait
// for one that will never let it in.

package source

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// FixStream returns what to do about a stream that failed; "" if the error is clear by itself.
func FixStream(c *Config, err error) string {
	var stop *event.Stop
	if errors.As(FatalConnect(c, err, false, time.Time{}), &stop) {
		return stop.Fix
	}
	if isUnconvertible(err) {
		return "the slot cannot pass a row whose text PostgreSQL cannot convert to UTF-8. Rows that were deleted, and messages, are nowhere but in the slot: " + ShowSlotHint(c.Slot) +
			"; then correct the row in its table, drop the slot, and run `cdc-relay recover`, which sends what the tables have"
	}
	return FixConnect(err)
}

// FixConnect returns what to do about a failure that the relay waits for; "" if the error is clear
// by itself.
func FixConnect(err error) string {
	for _, fix := range []func(error) string{fixTLS, fixStandby, poolerRefused} {
		if text := fix(err); text != "" {
			return text
		}
	}
	return ""
}

// FixAbsent is the fix for a server that does not answer at all. Only check uses it: a running
// relay waits, and knows the address to be right.
func FixAbsent(err error) string {
	var atConnect *pgconn.ConnectError
	if !errors.As(err, &atConnect) || SQLState(err) != "" {
		return ""
	}
	return "check source.url, that PostgreSQL runs and listens there, and that no firewall is in between"
}

// fixTLS is the fix for an error of TLS; "" means that the error is none, or has no known fix.
func fixTLS(err error) string {
	var unknownCA x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var network *net.OpError
	switch {
	case errors.As(err, &unknownCA):
		return "set sslrootcert in source.url to the CA that signed the server's certificate"
	case errors.As(err, &hostname):
		return "use a name of the server's certificate as the host in source.url"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the server's certificate, or set this machine's clock"
	// With an SQLSTATE the server was reached without TLS behind that.
	case SQLState(err) == "" && strings.Contains(err.Error(), "server refused TLS connection"):
		return "the server has ssl = off, and sslmode of source.url wants TLS: set ssl = on there, with ssl_cert_file and ssl_key_file, and reload it; on a network that nobody else reads, sslmode=disable"
	case !isAlert(err) || !errors.As(err, &network):
		return ""
	case strings.Contains(network.Err.Error(), "expired"):
		return "renew the client certificate, sslcert in source.url"
	}
	return "the server refuses the client certificate, sslcert in source.url: it has to be signed by a CA of the server's ssl_ca_file"
}

// fixStandby is the fix when there is no primary among the hosts of source.url.
func fixStandby(err error) string {
	var stop *event.Stop
	if errors.Is(err, errStandby) && !errors.As(err, &stop) {
		return "name the primary in source.url, or all servers of the cluster (postgres://a:5432,b:5432/shop): the one that can be written to is taken"
	}
	return ""
}

// isUnconvertible reports whether the server cannot convert a text to UTF-8. If that happens in the
// stream, it happens at each try, and the slot keeps all WAL behind the row.
func isUnconvertible(err error) bool {
	code := SQLState(err) // character_not_in_repertoire, untranslatable_character
	return code == "22021" || code == "22P05"
}

// poolerRefused returns the fix if a pooler refused what only PostgreSQL itself accepts; "" means
// that no pooler is to blame.
func poolerRefused(err error) string {
	switch code := SQLState(err); {
	case code == "08P01" && strings.Contains(err.Error(), "startup parameter"),
		// PgBouncer knows few of them
		// prepared statements that are somebody else's, or somewhere else
		code == "42P05", code == "26000",
		// its server is no walsender
		code == "42601" && strings.Contains(err.Error(), "IDENTIFY_SYSTEM"):
		return FixPooler
	}
	return ""
}

// FixPooler is the fix when a pooler is between the relay and PostgreSQL.
const FixPooler = "give source.url the address of PostgreSQL itself, past the pooler; the application may go on using it"

// FatalConnect turns a server's answer to a connection attempt into a Stop, or returns nil if it is
// worth waiting: for a server that is down, starting up, or temporarily full. everConnected means
// that this relay worked before. It then keeps trying through wrong passwords and full walsender
// slots, because secrets rotate and other clients leave. A zero since means not to wait, because
// commands try once.
func FatalConnect(c *Config, err error, everConnected bool, since time.Time) error {
	if everConnected {
		return nil
	}
	if stop, ok := errors.AsType[*event.Stop](err); ok {
		return stop
	}
	stop := func(reason, what, fix string) error {
		return &event.Stop{Code: event.ExitFailure, Reason: reason, What: what, Fix: fix, Err: OneLine(err), CauseLast: true}
	}
	// of the session that was refused; the URL may name several hosts
	role, database := c.Role(), ""
	var atConnect *pgconn.ConnectError
	if errors.As(err, &atConnect) {
		role, database = atConnect.Config.User, atConnect.Config.Database
	}
	switch code := SQLState(err); {
	case code == "28P01" || code == "28000":
		if time.Since(since) < passwordPatience {
			return nil
		}
		if code == "28P01" {
			return stop("login", refusedLogin(role, since), fmt.Sprintf("correct source.password, or the password in source.url; or set it: ALTER ROLE %[1]s PASSWORD '...' (if there is no such role: CREATE ROLE %[1]s LOGIN REPLICATION PASSWORD '...')", QuoteName(role)))
		}
		return stop("login", refusedLogin(role, since),
			"correct source.url, its certificate (sslcert) and source.password, or pg_hba.conf (it needs a line for the role and the database itself, and for replication=database connections of the same database)")
	case code == "42501" && atConnect != nil:
		return stop("rights", "this role may not replicate, or may not connect to this database",
			fmt.Sprintf("ALTER ROLE %[1]s REPLICATION; GRANT CONNECT ON DATABASE %[2]s TO %[1]s", QuoteName(role), QuoteName(database)))
	case code == "42501":
		return stop("rights", "this role lacks a privilege", InitHint(c.Role()))
	case code == "53300":
		return stop("no_sender", "the server has no free walsender or connection", "raise max_wal_senders (or max_connections) and restart the server")
	case code == "3D000":
		return stop("database", fmt.Sprintf("the database %q does not exist", database), fmt.Sprintf("create it (CREATE DATABASE %s OWNER %s), or correct source.url", QuoteName(database), QuoteName(role)))
	}
	return nil
}

// OrFatal returns the Stop that FatalConnect has for err in a command, which tries once, or err
// itself if there is none.
func OrFatal(c *Config, err error) error {
	if stop := FatalConnect(c, err, false, time.Time{}); stop != nil {
		return stop
	}
	return err
}

// refusedLogin describes a refused login and for how long it was tried.
func refusedLogin(role string, since time.Time) string {
	if since.IsZero() {
		return fmt.Sprintf("PostgreSQL refuses the login of %q", role)
	}
	return fmt.Sprintf("PostgreSQL refused the login of %q for %s", role, passwordPatience)
}

// passwordPatience is how long a relay that never connected tries a login that is refused.
const passwordPatience = 60 * time.Second

// OneLine puts an error in one line. An error of pgconn has a line for each address that was tried,
// and the same line twice when the address was tried with and without TLS.
func OneLine(err error) error { return oneLineError{err} }

// oneLineError is an error whose text OneLine has put in one line.
type oneLineError struct{ error }

func (e oneLineError) Error() string {
	lines := strings.Split(e.error.Error(), "\n\t")
	return strings.TrimSpace(lines[0] + " " + strings.Join(slices.Compact(lines[1:]), "; "))
}

// Unwrap is the error with its lines.
func (e oneLineError) Unwrap() error { return e.error }

// StableText removes from an error text what differs between tries with the same cause: the local
// address in errors of package net, the current time in the error about an expired certificate, and
// whether a TLS alert arrived during a write or a read.
func StableText(text string) string { return unstableParts().ReplaceAllString(text, "$1$2") }

// unstableParts finds what StableText removes.
var unstableParts = lazy.Regexp(`\b(read tcp |write tcp )\S+->|\bcurrent time \S+ is |` +
	`\bfailed to (?:write startup message: write failed|receive message): (remote error: tls: )`)
