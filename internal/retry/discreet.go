package retry

import (
	"errors"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// discreet is an error of the server whose text is without the values that it is about: it goes into the log and the status. Only
// data exceptions quote values in their message; details, which show whole rows, are not in the text of an error anyway.
type discreet struct{ error }

// Unwrap is the error itself.
func (d discreet) Unwrap() error { return d.error }

var quoted = regexp.MustCompile(`"[^"]*"|0x[0-9a-f]{2}( 0x[0-9a-f]{2})*`)

func (d discreet) Error() string {
	text := d.error.Error()
	var server *pgconn.PgError
	if errors.As(d.error, &server) && strings.HasPrefix(server.Code, "22") {
		return strings.ReplaceAll(text, server.Message, quoted.ReplaceAllString(server.Message, "…"))
	}
	return text
}
