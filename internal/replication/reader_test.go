package replication

import (
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Servers say it in their own language; the codes and the publication's name are the same in all.
func TestMessagesThatMeanLostRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, message string
		stops         bool
	}{
		{publicationSkipped, `skipped loading publication "p"`, true},
		{publicationSkipped, `Publikation »p« wurde nicht geladen`, true}, //nolint:misspell // German
		{publicationSkipped, `パブリケーション"p"はスキップされました`, true},
		{publicationSkipped, `skipped loading publication "p2"`, false},
		{publicationSkipped, `skipped loading publication "app"`, false},
		{"01000", `something about "p"`, false},
	} {
		r := reading{session: &session{Stream: &Stream{cfg: Config{Publication: "p", Slot: "s"}}}}
		err := r.notice(&pgproto3.NoticeResponse{Severity: "WARNUNG", SeverityUnlocalized: "WARNING", Code: c.code, Message: c.message})
		if c.stops {
			wantStop(t, err, outbox.ExitOperator, "publication")
		} else if err != nil {
			t.Errorf("%s %s: %v", c.code, c.message, err)
		}
		code := c.code
		if code == publicationSkipped {
			code = publicationUnknown
		}
		err = r.serverError(&pgproto3.ErrorResponse{Severity: "ERROR", Code: code, Message: c.message})
		if c.stops {
			wantStop(t, err, outbox.ExitOperator, "publication")
		} else if pgCode(err) != code {
			t.Errorf("%s %s: %v", code, c.message, err)
		}
	}
}
