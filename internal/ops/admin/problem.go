// Answers: JSON, and problem details for errors.

package admin

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/printable"
)

// problem is an error answer in the form of RFC 9457.
type problem struct {
	Type   string `json:"type"` // about:blank: Title says what Status says
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	writeBody(w, status, problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	writeBody(w, status, body)
}

// writeBody writes what a terminal may show as it comes: curl prints it raw.
func writeBody(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(printable.JSON(w)).Encode(body) //nolint:errcheck // the client has gone
}

// problemStatus is the status of an error that is the request's own; 0 for any other.
func problemStatus(err error) int {
	var bad *dlq.BadInput
	var body *badRequest
	var missing *dlq.NotFound
	var not *dlq.NotNow
	switch {
	case errors.As(err, &bad), errors.As(err, &body):
		return http.StatusBadRequest
	case errors.As(err, &missing):
		return http.StatusNotFound
	case errors.As(err, &not):
		return http.StatusConflict
	}
	return 0
}

func writeError(w http.ResponseWriter, err error) {
	var done *dlq.Done
	status := problemStatus(err)
	switch {
	case errors.As(err, &done):
		writeJSON(w, http.StatusOK, map[string]string{"note": done.Error()})
	case status != 0:
		writeProblem(w, status, err.Error())
	default:
		writeProblem(w, http.StatusServiceUnavailable, "the database: "+err.Error())
	}
}
