package replication

import (
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-relay/cdc-relay/internal/decode"
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

// The gulp is told where in the stream its next read is: that decides whether the reader may be late.
func TestGulpKnowsWhereTheStreamIs(t *testing.T) {
	r := reading{ctx: t.Context(), session: &session{Stream: &Stream{}, t: &term{line: newRecorder(1)}, gulp: &gulp{}}}
	for i, c := range []struct {
		msg          decode.Message
		open, closed bool
	}{
		{decode.Message{Kind: decode.Begin, Commit: 10}, true, false},
		{decode.Message{Kind: decode.Row, Event: &outbox.Event{}}, true, false},
		{decode.Message{Kind: decode.Commit, Commit: 10, End: 11}, false, true},
		{decode.Message{Kind: decode.Begin, Commit: 20}, true, true},
		{decode.Message{Kind: decode.Commit, Commit: 20, End: 21}, false, false}, // without events nothing is reported soon
	} {
		r.msg = c.msg
		if err := r.frame(); err != nil {
			t.Fatal(err)
		}
		if g := r.gulp; g.open != c.open || g.closed != c.closed {
			t.Errorf("after message %d it is open %v, closed %v, want %v, %v", i, g.open, g.closed, c.open, c.closed)
		}
	}
}
