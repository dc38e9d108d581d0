// An event as it is stored: with its id, its JSON and its trace context.

package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/propagation"
)

// row is an event that was checked. Of payload, headers and traceparent an empty text is NULL.
type row struct {
	id, aggregate, key, typ string
	payload, headers        string // JSON
	traceparent             string
}

// rows makes the rows of events, all or, with ErrInvalid, none. uuids: the ids must be UUIDs.
func (w *Writer) rows(ctx context.Context, events []Event, uuids bool) ([]row, error) {
	if len(events) == 0 {
		return nil, nil
	}
	trace := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, trace)
	rows := make([]row, len(events))
	for i := range events {
		var err error
		if rows[i], err = w.row(&events[i], trace, uuids); err != nil {
			return nil, fmt.Errorf("%w (%d of %d): %w", ErrInvalid, i+1, len(events), err)
		}
	}
	return rows, nil
}

// row makes the row of an event, or says why it can never be delivered.
func (w *Writer) row(ev *Event, trace propagation.MapCarrier, uuids bool) (row, error) {
	r := row{id: ev.ID, aggregate: ev.Aggregate, key: ev.Key, typ: ev.Type, traceparent: trace["traceparent"]}
	if err := w.checkParts(ev, uuids); err != nil {
		return r, err
	}
	if r.id == "" && w.cfg.Columns.ID != NoColumn {
		r.id = uuid.Must(uuid.NewV7()).String() // crypto/rand does not fail
	}
	var err error
	if r.payload, err = w.payload(ev.Payload); err != nil {
		return r, fmt.Errorf("payload: %w", err)
	}
	headers := ev.Headers
	if state := trace["tracestate"]; state != "" && w.cfg.Columns.Headers != NoColumn {
		headers = maps.Clone(headers)
		if headers == nil {
			headers = map[string]string{}
		}
		headers["tracestate"] = state
	}
	if len(headers) > 0 {
		if r.headers, err = encodeJSON(headers); err != nil {
			return r, fmt.Errorf("headers: %w", err)
		}
	}
	return r, checkSize(&r, headers)
}

// payload is the JSON of a payload, and nothing for nil.
func (w *Writer) payload(payload any) (text string, err error) {
	switch p := payload.(type) {
	case nil:
		return "", nil
	case string:
		return "", errors.New("it is a string: use json.RawMessage for text that is JSON")
	case json.RawMessage:
		text = string(p)
	case []byte:
		text = string(p)
	default:
		if text, err = encodeJSON(payload); err != nil {
			return "", err
		}
	}
	if strings.Trim(text, " \t\r\n") == "null" {
		return "", errors.New("it is the JSON null; for an event without a body set Payload to nil")
	}
	size, err := checkJSON(text)
	if err == nil && size > w.cfg.MaxPayload {
		err = fmt.Errorf("it has %d bytes as PostgreSQL may write it, the limit is %d (Config.MaxPayload)", size, w.cfg.MaxPayload)
	}
	return text, err
}

// encodeJSON is json.Marshal without its escapes for HTML.
func encodeJSON(value any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// What one statement carries. PostgreSQL takes 65,535 parameters and 1 GB.
const (
	batchRows  = 1000
	batchBytes = 64 << 20
)

// batches cuts rows, in their order, into what one statement carries: at least one row.
func batches(rows []row) iter.Seq[[]row] {
	return func(yield func([]row) bool) {
		for len(rows) > 0 {
			n, size := 0, 0
			for n < len(rows) && n < batchRows && (n == 0 || size < batchBytes) {
				size += len(rows[n].payload) + len(rows[n].headers) + len(rows[n].key)
				n++
			}
			if !yield(rows[:n]) {
				return
			}
			rows = rows[n:]
		}
	}
}
