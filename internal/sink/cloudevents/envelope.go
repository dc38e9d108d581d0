// The JSON object of an event in structured mode.

package cloudevents

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// dataForm is how the object has an event's payload.
type dataForm uint8

const (
	noData   dataForm = iota // NULL
	jsonData                 // data, as it stands
	textData                 // data, a string
	byteData                 // data_base64
)

// formOf decides how the object has the payload. Bytes are what everybody can read: so text that
// its content type calls JSON, and that is none, is sent as bytes, and so is JSON of a type such as
// application/vnd.x+json. By the specification that one may be a JSON value, but the SDKs for Go
// and Java then want a string.
func formOf(ev *event.Event, contentType string) dataForm {
	plainJSON, otherJSON := isJSON(contentType)
	switch {
	case ev.Payload == nil:
		return noData
	case plainJSON && ev.PayloadKind == event.JSON:
		return jsonData
	case otherJSON || ev.PayloadKind == event.Binary || !utf8.Valid(ev.Payload):
		return byteData
	case !plainJSON:
		return textData
	case json.Valid(ev.Payload):
		return jsonData
	}
	return byteData
}

// envelope makes the record's value: the attributes and the payload, which is last. Its size is
// computed first, because the budget is charged before the bytes are there.
func (e *Encoder) envelope(ev *event.Event, rec *sink.Record, values *[attributeCount][]byte) *sink.Fault {
	form := formOf(ev, aliasText(values[contentType]))
	size := len("{}")
	for i, value := range values {
		size += memberSize(attributeNames[i], value)
	}
	for i := range e.extensions {
		size += memberSize(e.extensions[i].name, ev.Columns[e.extensions[i].column])
	}
	size += len(`,"data_base64":`)
	switch form {
	case noData:
	case jsonData:
		size += len(ev.Payload)
	case textData:
		size += quotedSize(ev.Payload)
	case byteData:
		size += len(`""`) + base64.StdEncoding.EncodedLen(len(ev.Payload))
	}
	if !rec.Budget.Make(size) {
		return sink.OverBudget(rec.Budget.Err())
	}
	start, b := len(rec.Buf), slices.Grow(rec.Buf, size)
	for i, value := range values {
		b = appendMember(b, attributeNames[i], value)
	}
	b[start] = '{' // a comma
	for i := range e.extensions {
		b = appendMember(b, e.extensions[i].name, ev.Columns[e.extensions[i].column])
	}
	switch form {
	case noData:
	case jsonData:
		b = append(append(b, `,"data":`...), ev.Payload...)
	case textData:
		b = appendQuoted(append(b, `,"data":`...), ev.Payload)
	case byteData:
		b = append(b, `,"data_base64":"`...)
		b = append(base64.StdEncoding.AppendEncode(b, ev.Payload), '"')
	}
	rec.Buf = append(b, '}')
	rec.Value = rec.MadeSince(start)
	return nil
}

// memberSize is how many bytes appendMember appends.
func memberSize(name string, value []byte) int {
	if value == nil {
		return 0
	}
	return len(`,"":`) + len(name) + quotedSize(value)
}

// appendMember appends a member of the object, with a comma before it; a nil value is no member.
func appendMember(b []byte, name string, value []byte) []byte {
	if value == nil {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendQuoted(b, value)
}

// quotedSize is how many bytes appendQuoted appends.
func quotedSize(text []byte) int {
	size := len(`""`) + len(text)
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			size++
		case c < ' ':
			size += len(`\u0000`) - 1
		}
	}
	return size
}

// appendQuoted appends a text as a JSON string, which escapes only what it must.
func appendQuoted(b, text []byte) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	done := 0
	for i, c := range text {
		switch {
		case c == '"' || c == '\\':
			b = append(append(b, text[done:i]...), '\\', c)
		case c < ' ':
			b = append(append(b, text[done:i]...), '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			continue
		}
		done = i + 1
	}
	return append(append(b, text[done:]...), '"')
}
