package session

import (
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
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
		r := streamReader{Session: &Session{Shared: &Shared{Cfg: &source.Config{Publication: "p", Slot: "s"}}}}
		err := r.stopAtNotice(&pgproto3.NoticeResponse{Severity: "WARNUNG", SeverityUnlocalized: "WARNING", Code: c.code, Message: c.message})
		if c.stops {
			replicationtest.WantStop(t, err, event.ExitOperator, "publication")
		} else if err != nil {
			t.Errorf("%s %s: %v", c.code, c.message, err)
		}
		code := c.code
		if code == publicationSkipped {
			code = publicationUnknown
		}
		err = r.serverErrorStop(&pgproto3.ErrorResponse{Severity: "ERROR", Code: code, Message: c.message})
		if c.stops {
			replicationtest.WantStop(t, err, event.ExitOperator, "publication")
		} else if source.SQLState(err) != code {
			t.Errorf("%s %s: %v", code, c.message, err)
		}
	}
}

// The coalesced read knows how much has come of the open transaction: that decides whether the
// reader may be late.
func TestCoalesceKnowsWhereTheStreamIs(t *testing.T) {
	r := streamReader{ctx: t.Context(), Session: &Session{Shared: &Shared{}, term: &Term{Line: replicationtest.NewRecorder(1)}, coalescer: &Coalescer{}}}
	for i, c := range []struct {
		msg    decode.Message
		frames int
	}{
		{decode.Message{Kind: decode.Begin, Commit: 10}, 0},
		{decode.Message{Kind: decode.Row, Event: &event.Event{}}, 1},
		{decode.Message{Kind: decode.Other}, 2},
		{decode.Message{Kind: decode.Commit, Commit: 10, End: 11}, 0},
		{decode.Message{Kind: decode.Other}, 0},
	} {
		r.msg = c.msg
		if err := r.handleFrame(); err != nil {
			t.Fatal(err)
		}
		if r.coalescer.frames != c.frames {
			t.Errorf("after message %d: %d frames, want %d", i, r.coalescer.frames, c.frames)
		}
	}
}

// A stream that is read again must bring the transaction that was read last, before anything behind
// it counts.
func TestSeenAgain(t *testing.T) {
	var c source.Config
	newest := lastTransaction{commit: 100, xid: 7, from: 50}
	for name, read := range map[string]func(a *lastTransaction) (ok bool, err error){
		"itself":               func(a *lastTransaction) (bool, error) { return true, a.checkBegin(&c, 100, 7) },
		"one before it":        func(a *lastTransaction) (bool, error) { return true, a.checkBegin(&c, 90, 6) },
		"a keepalive before":   func(a *lastTransaction) (bool, error) { ok, err := a.checkKeepalive(&c, 100); return !ok, err },
		"another in its place": func(a *lastTransaction) (bool, error) { return a.checkBegin(&c, 100, 8) != nil, nil },
		"one behind it":        func(a *lastTransaction) (bool, error) { return a.checkBegin(&c, 110, 8) != nil, nil },
		"a keepalive behind":   func(a *lastTransaction) (bool, error) { _, err := a.checkKeepalive(&c, 101); return err != nil, nil },
		"what follows it": func(a *lastTransaction) (bool, error) {
			if err := a.checkBegin(&c, 100, 7); err != nil {
				return false, err
			}
			ok, err := a.checkKeepalive(&c, 120)
			return ok && a.checkBegin(&c, 130, 9) == nil, err
		},
	} {
		a := newest
		if ok, err := read(&a); !ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
}
