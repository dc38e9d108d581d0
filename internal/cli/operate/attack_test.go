package operate

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/printable"
	"github.com/cdc-relay/cdc-relay/internal/printable/printabletest"
)

// No text of an event, of a broker, of the database or of another operator reaches the terminal as
// more than text, whichever field it is in.
func TestTerminalEscapesInEveryField(t *testing.T) {
	var detail dlq.Detail
	var page dlq.Page
	var located dlq.Event
	var jobs [1]dlq.Job
	var requests [2]dlq.Request
	for _, v := range []any{&detail, &page, &located, &jobs, &requests} {
		printabletest.Fill(v)
	}
	open := detail // of a row that waits, and of a dead letter
	open.State, open.Fault, open.DiedAt = dlq.Waiting, nil, nil
	base64 := detail
	base64.Payload = &dlq.Content{Base64: detail.Payload.Text}
	cancelled := requests
	cancelled[0].State, cancelled[1].State = dlq.RequestCancelled, dlq.RequestWaits
	running := jobs[0]
	running.State = dlq.JobRuns

	report := func(res result, of func(*result) error) func(io.Writer) error {
		return func(w io.Writer) error {
			res.out = printable.Text(w)
			if err := of(&res); err == nil {
				return errors.New("nothing has failed")
			}
			return nil
		}
	}
	rows := result{requests: requests[:], notes: []string{printabletest.Attack}, errors: []rowError{{N: 1, Error: printabletest.Attack, err: errors.New(printabletest.Attack)}}}
	for name, show := range map[string]func(io.Writer) error{
		"show":             func(w io.Writer) error { return printDetail(w, &detail) },
		"show of deferred": func(w io.Writer) error { return printDetail(w, &open) },
		"show of bytes":    func(w io.Writer) error { return printDetail(w, &base64) },
		"list":             func(w io.Writer) error { return printRows(w, dlq.DeadLetters, page) },
		"list of deferred": func(w io.Writer) error { return printRows(w, dlq.Deferred, page) },
		"events show":      func(w io.Writer) error { return printEvent(w, &located) },
		"jobs":             func(w io.Writer) error { return printJobs(w, jobs[:]) },
		"a job":            report(rows, func(r *result) error { return r.reportJob(jobs[0], true) }),
		"a running job":    report(rows, func(r *result) error { return r.reportJob(running, false) }),
		"requests":         report(rows, func(r *result) error { return r.report(true) }),
		"more requests":    report(result{requests: cancelled[:], notes: rows.notes}, func(r *result) error { return r.report(false) }),
		"request":          func(w io.Writer) error { return printRequest(w, &requests[0]) },
	} {
		var out bytes.Buffer
		if err := show(&out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		printabletest.CheckLines(t, name, out.String())
	}
	for name, v := range map[string]any{"detail": detail, "page": page, "event": located, "job": jobs, "request": requests} {
		var out bytes.Buffer
		if err := output.JSON(&out, v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		printabletest.CheckLines(t, "--json of "+name, out.String())
	}
}
