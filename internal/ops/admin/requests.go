// Reading requests of the API: parameters and bodies, strictly.

package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

// badRequest is a request that cannot be understood.
type badRequest struct{ what string }

func (e *badRequest) Error() string { return e.what }

// query is a list's.
type query struct {
	dlq.FilterInput
	Cursor string
	Limit  int
}

// defaultLimit is the length of a page when none is asked for.
const defaultLimit = 50

// readQuery reads the parameters of a list. One that is unknown, or given twice, is refused: a
// filter that is misspelt would choose everything.
func readQuery(values url.Values) (query, error) {
	q := query{Limit: defaultLimit}
	for name, given := range values {
		var err error
		switch {
		case len(given) > 1:
			err = errors.New("is given twice")
		case name == "cursor":
			q.Cursor = given[0]
		case name == "limit":
			if q.Limit, err = strconv.Atoi(given[0]); err != nil {
				err = fmt.Errorf("is %q, want a number", given[0])
			}
		default:
			known, bad := q.Set(name, given[0])
			if bad != nil {
				return q, bad
			}
			if !known {
				err = errors.New("is not known")
			}
		}
		if err != nil {
			return q, &badRequest{"the parameter " + name + " " + err.Error()}
		}
	}
	return q, nil
}

// routeInput is where a replay goes instead: the parts of a route that are given, by their keys.
type routeInput map[string]string

func (t routeInput) route(kind string) (r event.Route, err error) {
	if len(t) == 0 {
		return r, nil
	}
	d := drivers.Named(kind)
	if other := drivers.Foreign(d, t); other != nil {
		var keys []string
		for _, p := range other.Route {
			keys = append(keys, p.Key)
		}
		is := " is "
		if len(keys) > 1 {
			is = " are "
		}
		return r, &badRequest{strings.Join(keys, " and ") + is + other.Broker + "'s, and sink." + other.Name + " is not configured"}
	}
	return d.RouteOf(t), nil
}

// notForReplay refuses the parts of a route in a request that is none for a replay.
func (t routeInput) notForReplay(kind dlq.Kind) error {
	if kind == dlq.Replay || len(t) == 0 {
		return nil
	}
	keys := drivers.PartKeys()
	last := len(keys) - 1
	return &badRequest{strings.Join(keys[:last], ", ") + " and " + keys[last] + " are for a replay"}
}

// readAction reads a body that may have the parts of a route in it.
func readAction(r *http.Request, into any) (routeInput, error) {
	var given map[string]json.RawMessage
	if err := readBody(r, &given); err != nil {
		return nil, err
	}
	parts := routeInput{}
	for name, value := range given {
		key := strings.ToLower(name)
		if drivers.WithPart(key) == nil {
			continue
		}
		delete(given, name)
		var text *string
		if err := json.Unmarshal(value, &text); err != nil {
			return nil, &badRequest{"the body: " + name + ": " + err.Error()}
		}
		if text != nil {
			parts[key] = *text
		}
	}
	rest, err := json.Marshal(given)
	if err != nil {
		return nil, err
	}
	return parts, decode(bytes.NewReader(rest), into)
}

// askBody is the body of a request about one row; it may be left out.
type askBody struct {
	routeInput `json:"-"`
	Reason     string `json:"reason"`
}

func readAsk(r *http.Request, kind dlq.Kind) (*askBody, error) {
	var b askBody
	parts, err := readAction(r, &b)
	if err != nil {
		return nil, err
	}
	b.routeInput = parts
	return &b, b.notForReplay(kind)
}

// readReason reads why something is deleted: a parameter, because a DELETE's body may be lost on
// the way, or the body, as elsewhere.
func readReason(r *http.Request) (string, error) {
	var b struct {
		Reason string `json:"reason"`
	}
	if err := readBody(r, &b); err != nil {
		return "", err
	}
	for name, given := range r.URL.Query() {
		switch {
		case name != "reason":
			return "", &badRequest{"the parameter " + name + " is not known"}
		case len(given) > 1 || b.Reason != "":
			return "", &badRequest{"the reason is given twice"}
		}
		b.Reason = given[0]
	}
	return b.Reason, nil
}

// bulkBody is the body of a request about all rows that a filter chooses.
type bulkBody struct {
	dlq.FilterInput
	routeInput `json:"-"`
	All        bool   `json:"all"` // required when there is no filter
	DryRun     bool   `json:"dry_run"`
	Rate       int    `json:"rate"` // per second
	Reason     string `json:"reason"`
}

func readBulk(r *http.Request, kind dlq.Kind) (*bulkBody, error) {
	var b bulkBody
	parts, err := readAction(r, &b)
	if err != nil {
		return nil, err
	}
	if b.FilterInput == (dlq.FilterInput{}) && !b.All {
		return nil, &badRequest{`which? Give a filter, or "all": true`}
	}
	b.routeInput = parts
	return &b, b.notForReplay(kind)
}

// maxBody is the longest body that is read: a key may be long.
const maxBody = 1 << 20

// readBody reads one JSON object, all of whose names are known; nothing at all is an empty one.
func readBody(r *http.Request, into any) error {
	return decode(http.MaxBytesReader(nil, r.Body, maxBody), into)
}

func decode(body io.Reader, into any) error {
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	switch err := dec.Decode(into); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return &badRequest{"the body: " + err.Error()}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &badRequest{"the body has more than one JSON object"}
	}
	return nil
}
