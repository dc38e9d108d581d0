// Package cloudevents makes CloudEvents 1.0 of the relay's own messages: in binary mode the
// attributes are headers and the body is the payload, in structured mode both are one JSON object.
// The relay's own headers stay, so consumers need not change at once.
//
// It is pure, as every encoder is: the attributes depend on the event and the configuration alone.
package cloudevents

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The attributes, in the order in which a message has them. Extensions of the configuration follow.
const (
	specVersion = iota
	id
	source
	kind
	subject
	moment
	contentType
	schema
	traceparent
	partitionKey
	sequence
	attributeCount
)

var attributeNames = [attributeCount]string{
	"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "traceparent", "partitionkey", "sequence",
}

// version is the specversion of all events.
var version = []byte("1.0")

// structuredType is the content type of a message in structured mode.
const structuredType = "application/cloudevents+json"

// Encoder makes CloudEvents. What is not about them (the destination, the relay's own headers, the
// properties of AMQP, copies of dead letters) it leaves to the plain encoder of the sink.
type Encoder struct {
	plain      sink.Encoder
	structured bool
	binding    *sink.CloudEventsBinding
	headers    [attributeCount]string // their names

	source, kind, subject, contentType, schema template
	extensions                                 []extension
}

// extension is an attribute of the configuration.
type extension struct {
	name, header string
	column       int // in Event.Columns
}

// template makes an attribute's value.
type template struct {
	sink.Template
	name  string // of the attribute
	valid bool   // a value without placeholders was checked with the configuration
}

var _ sink.Encoder = (*Encoder)(nil)

// Encoder makes the encoder of a sink whose messages carry CloudEvents as binding says. plain is
// the sink's own, and columns are those of Event.Columns.
func (s *Settings) Encoder(binding *sink.CloudEventsBinding, columns []string, plain sink.Encoder) (sink.Encoder, error) {
	e := &Encoder{plain: plain, structured: s.Mode == Structured, binding: binding}
	for i, name := range attributeNames {
		e.headers[i] = binding.Prefix + name
	}
	for _, of := range []struct {
		to        *template
		attribute int
		from      sink.Template
	}{
		{&e.source, source, s.Source},
		{&e.kind, kind, s.Type},
		{&e.subject, subject, s.Subject},
		{&e.contentType, contentType, s.DataContentType},
		{&e.schema, schema, s.DataSchema},
	} {
		name := attributeNames[of.attribute]
		bound, err := of.from.Bind(columns)
		if err != nil {
			return nil, fmt.Errorf("cloudevents %s: %w", name, err)
		}
		_, constant := bound.Constant()
		*of.to = template{bound, name, constant}
	}
	for _, named := range s.Extensions {
		i := slices.Index(columns, named.Column)
		if i < 0 {
			return nil, fmt.Errorf("cloudevents extension %q: column %q is not read", named.Name, named.Column)
		}
		e.extensions = append(e.extensions, extension{named.Name, binding.Prefix + named.Name, i})
	}
	if of := plain.Traits().ContentType; of != "" {
		if err := checkContentType(of, e.structured); err != nil {
			return nil, fmt.Errorf("content_type %w", err)
		}
	}
	return e, nil
}

// Traits implements sink.Encoder.
func (e *Encoder) Traits() sink.Traits { return e.plain.Traits() }

// Place implements sink.Encoder.
func (e *Encoder) Place(ev *event.Event, rec *sink.Record) *sink.Fault { return e.plain.Place(ev, rec) }

// Encode implements sink.Encoder. The copy of a dead letter is no CloudEvent: of a dead one there
// may be none.
func (e *Encoder) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	if fault := e.plain.Encode(ev, rec); fault != nil || ev.Copy {
		return fault
	}
	var values [attributeCount][]byte
	if fault := e.attributes(ev, rec, &values); fault != nil {
		return fault
	}
	if e.structured {
		if fault := e.envelope(ev, rec, &values); fault != nil {
			return fault
		}
		e.setContentType(rec, structuredType)
		return nil
	}
	for i, value := range values {
		if i != contentType {
			rec.AddTextHeader(e.headers[i], value)
		}
	}
	for i := range e.extensions {
		x := &e.extensions[i]
		rec.AddTextHeader(x.header, ev.Columns[x.column])
	}
	e.setContentType(rec, aliasText(values[contentType]))
	return nil
}

// setContentType sets the content type of the message, where its broker has it.
func (e *Encoder) setContentType(rec *sink.Record, text string) {
	if name := e.binding.ContentType; name != "" {
		rec.AddTextHeader(name, aliasBytes(text))
		return
	}
	rec.Properties.ContentType = text
}

// attributes fills in the values of the attributes; nil: the event has none. The record was made by
// the plain encoder.
func (e *Encoder) attributes(ev *event.Event, rec *sink.Record, of *[attributeCount][]byte) *sink.Fault {
	of[specVersion], of[id] = version, ev.ID
	var fault *sink.Fault
	if of[source], fault = e.source.required(ev, rec); fault != nil {
		return fault
	}
	if of[kind], fault = e.kind.required(ev, rec); fault != nil {
		return fault
	}
	if of[subject], fault = e.subjectOf(ev, rec); fault != nil {
		return fault
	}
	if of[contentType], fault = e.contentTypeOf(ev, rec); fault != nil {
		return fault
	}
	if of[schema], fault = e.schema.value(ev, rec); fault != nil {
		return fault
	}
	if !isBlank(ev.Key) {
		of[partitionKey] = ev.Key
	}
	// that of the row, with which the trace begins: the header of the same name may be of the
	// relay's own span
	if _, ok := event.ParseTraceparent(ev.Traceparent); ok {
		of[traceparent] = ev.Traceparent
	}
	start := len(rec.Buf)
	rec.Buf = ev.Time.UTC().AppendFormat(rec.Buf, "2006-01-02T15:04:05.999999Z")
	of[moment] = rec.MadeSince(start)
	start = len(rec.Buf)
	rec.Buf = ev.Position.Append(rec.Buf)
	of[sequence] = rec.MadeSince(start)
	return e.check(ev, of)
}

// check looks for values that no CloudEvent may have.
func (e *Encoder) check(ev *event.Event, of *[attributeCount][]byte) *sink.Fault {
	if isBlank(of[id]) {
		return blankFault(attributeNames[id])
	}
	for _, i := range [...]int{id, kind, subject, partitionKey} {
		if !isText(of[i]) {
			return textFault(attributeNames[i])
		}
	}
	for i := range e.extensions {
		if x := &e.extensions[i]; !isText(ev.Columns[x.column]) {
			return textFault(x.name)
		}
	}
	if fault := e.source.checkURI(of[source], false); fault != nil {
		return fault
	}
	return e.schema.checkURI(of[schema], true)
}

// checkURI looks at a value that is not the same for all events; nil: there is none.
func (t *template) checkURI(value []byte, absolute bool) *sink.Fault {
	if value == nil || t.valid {
		return nil
	}
	if err := checkURI(aliasText(value), absolute); err != nil {
		return sink.PermanentFault(sink.Invalid, "cloudevents "+t.name+" "+err.Error())
	}
	return nil
}

// required is the value of an attribute that every event must have.
func (t *template) required(ev *event.Event, rec *sink.Record) ([]byte, *sink.Fault) {
	value, fault := t.value(ev, rec)
	if fault != nil || value != nil {
		return value, fault
	}
	if _, ok := t.Append(nil, ev); !ok {
		return nil, sink.PermanentFault(sink.NullInTemplate, "cloudevents "+t.name+" has a NULL in its template")
	}
	return nil, blankFault(t.name)
}

// value is the template's value for the event; nil: it is blank, or a placeholder's value is NULL.
func (t *template) value(ev *event.Event, rec *sink.Record) ([]byte, *sink.Fault) {
	if t.Fixed() == nil && !rec.Budget.Make(t.Size(ev)) {
		return nil, sink.OverBudget(rec.Budget.Err())
	}
	if value := t.Name(ev, rec); !isBlank(value) {
		return value, nil
	}
	return nil, nil
}

// subjectOf is the value of the template. Without one it is AGGREGATE/KEY, or KEY when there is no
// aggregate; an event without a key has no subject then.
func (e *Encoder) subjectOf(ev *event.Event, rec *sink.Record) ([]byte, *sink.Fault) {
	switch {
	case e.subject.String() != "":
		return e.subject.value(ev, rec)
	case isBlank(ev.Key):
		return nil, nil
	case isBlank(ev.Aggregate):
		return ev.Key, nil
	case !rec.Budget.Make(len(ev.Aggregate) + 1 + len(ev.Key)):
		return nil, sink.OverBudget(rec.Budget.Err())
	}
	start := len(rec.Buf)
	rec.Buf = append(append(append(rec.Buf, ev.Aggregate...), '/'), ev.Key...)
	return rec.MadeSince(start), nil
}

// contentTypeOf is the value of the template, or else what the plain message has, or else that of
// the payload's kind.
func (e *Encoder) contentTypeOf(ev *event.Event, rec *sink.Record) ([]byte, *sink.Fault) {
	value, fault := e.contentType.value(ev, rec)
	valid := value != nil && e.contentType.valid
	if value == nil && fault == nil {
		text := rec.Properties.ContentType
		if usual := ev.PayloadKind.ContentType(); text == "" || text == usual {
			text, valid = usual, true
		}
		value = aliasBytes(text)
	}
	if fault != nil || valid {
		return value, fault
	}
	if err := checkContentType(aliasText(value), e.structured); err != nil {
		return nil, sink.PermanentFault(sink.Invalid, "cloudevents datacontenttype "+err.Error())
	}
	return value, nil
}

// aliasText is b as a string without a copy.
func aliasText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// aliasBytes is s as bytes without a copy, which nobody may write to.
func aliasBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
