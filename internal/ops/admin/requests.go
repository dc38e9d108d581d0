// Reading requests of the API: parameters and bodies, strictly.

package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
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

// routeInput is where a replay goes instead.
type routeInput struct {
	Exchange   *string `json:"exchange"`
	RoutingKey *string `json:"routing_key"`
	Topic      *string `json:"topic"`
}

func (t *routeInput) route(kind string) (r event.Route, err error) {
	octets := func(s *string) []byte {
		if s == nil {
			return nil
		}
		return append([]byte{}, *s...)
	}
	switch {
	case (t.Exchange != nil || t.RoutingKey != nil) && kind != ops.SinkRabbitMQ:
		return r, &badRequest{"exchange and routing_key are RabbitMQ's, and sink.rabbitmq is not configured"}
	case t.Topic != nil && kind != ops.SinkKafka:
		return r, &badRequest{"topic is Kafka's, and sink.kafka is not configured"}
	case t.Topic != nil:
		r.Name = octets(t.Topic)
		return r, nil
	}
	r.Name, r.RoutingKey = octets(t.Exchange), octets(t.RoutingKey)
	return r, nil
}

// askBody is the body of a request about one row; it may be left out.
type askBody struct {
	routeInput
	Reason string `json:"reason"`
}

func readAsk(r *http.Request, kind dlq.Kind) (*askBody, error) {
	var b askBody
	if err := readBody(r, &b); err != nil {
		return nil, err
	}
	if kind != dlq.Replay && b.routeInput != (routeInput{}) {
		return nil, &badRequest{"exchange, routing_key and topic are for a replay"}
	}
	return &b, nil
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
	routeInput
	All    bool   `json:"all"` // required when there is no filter
	DryRun bool   `json:"dry_run"`
	Rate   int    `json:"rate"` // per second
	Reason string `json:"reason"`
}

func readBulk(r *http.Request, kind dlq.Kind) (*bulkBody, error) {
	var b bulkBody
	if err := readBody(r, &b); err != nil {
		return nil, err
	}
	switch {
	case b.FilterInput == (dlq.FilterInput{}) && !b.All:
		return nil, &badRequest{`which? Give a filter, or "all": true`}
	case kind != dlq.Replay && b.routeInput != (routeInput{}):
		return nil, &badRequest{"exchange, routing_key and topic are for a replay"}
	}
	return &b, nil
}

// maxBody is the longest body that is read: a key may be long.
const maxBody = 1 << 20

// readBody reads one JSON object, all of whose names are known; nothing at all is an empty one.
func readBody(r *http.Request, into any) error {
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
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
