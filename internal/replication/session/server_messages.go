// Errors and notices of the server while it streams, and which of them mean lost rows.

package session

import (
	"regexp"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// serverError ends the session. If a publication is missing at a position that the server must
// decode (PostgreSQL 14 to 17), it is missing there for ever, even if it was created since. So the
// relay does not try again.
func (r *reading) serverError(m *pgproto3.ErrorResponse) error {
	err := pgconn.ErrorResponseToPgError(m)
	source.MakeReadable(r.encoding, err)
	if err.Code == publicationUnknown && names(err.Message, r.Cfg.Publication) {
		return publication.Stop(r.Cfg, "did not exist when rows that wait in the slot were committed: "+err.Message, publication.RenewSlotHint(r.Cfg))
	}
	return err
}

// notice stops at the one warning that means lost rows: PostgreSQL 18 goes on without a publication
// that is missing. Its code is matched, since its text is in the server's language (lc_messages is
// not ours to set).
func (r *reading) notice(m *pgproto3.NoticeResponse) error {
	if m.Code != publicationSkipped {
		return nil
	}
	message, err := r.encoding.Message(m.Message)
	if err != nil { // it may name ours, and comes once
		return err
	}
	if names(message, r.Cfg.Publication) {
		return publication.Stop(r.Cfg, "is no longer used by the server: "+message, publication.RenewSlotHint(r.Cfg))
	}
	return nil
}

// The codes of a publication that is missing while a row is decoded: an error before PostgreSQL 18,
// a warning from it on.
const (
	publicationUnknown = "42704" // undefined_object
	publicationSkipped = "55000" // object_not_in_prerequisite_state
)

// names reports whether message contains name as a separate word, in whatever quotes the language
// uses.
func names(message, name string) bool {
	return regexp.MustCompile(`(?:^|[^\pL\p{Nd}_$])` + regexp.QuoteMeta(name) + `(?:[^\pL\p{Nd}_$]|$)`).MatchString(message)
}
