// The section sink.cloudevents of the configuration.

package cloudevents

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The modes: where a message has the attributes.
const (
	Binary     = "binary"     // in headers; the body is the payload
	Structured = "structured" // in the body, beside the payload
)

// Settings are the section sink.cloudevents.
type Settings struct {
	Mode string // "": messages are no CloudEvents

	// Templates of attributes. The zero value: the attribute has its usual value, or none.
	Source, Type, Subject, DataContentType, DataSchema sink.Template

	Extensions []setting.NamedColumn // further attributes
}

// Section is the section's path.
const Section = "sink.cloudevents"

// Default is the section when nothing is written.
func Default() Settings { return Settings{Type: sink.MustTemplate("{type}")} }

// Keys are the keys of the section, with their whole paths.
func (s *Settings) Keys() []setting.Key {
	template := func(name string, at *sink.Template) setting.Key {
		return setting.Single(name, setting.AnyText(), at, sink.ParseTemplate, func(t sink.Template) string { return setting.Quote(t.String()) })
	}
	extension := setting.Form{"pattern": "^[a-z0-9]+$", "maxLength": longestExtension, "not": setting.Form{"enum": slices.Concat(attributeNames[:], []string{"data"})}}
	keys := []setting.Key{
		setting.Choice("mode", &s.Mode, "", Binary, Structured).
			Doc("Send [CloudEvents](#sinkcloudevents)."),
		template("source", &s.Source).
			Doc("Template of `source`, a URI or the path of one.",
				"Empty: `/cdc-relay/DATABASE/SCHEMA.TABLE`, or with the prefix of the messages in place of the table. With several tables you must write it, because their ids may be equal: `source` and `id` together are unique."),
		template("type", &s.Type).
			Doc("Template of `type`, such as `com.example.{type}`."),
		template("subject", &s.Subject).
			Doc("Template of `subject`. Empty: `AGGREGATE/KEY`.", "Or `KEY` where there is no aggregate. NULL in the template, or an event without a key: no subject."),
		template("datacontenttype", &s.DataContentType).
			Doc("Template of `datacontenttype`. Empty: by the payload column's type.",
				"On RabbitMQ first what `sink.rabbitmq` sets as `content_type`. The same holds where the template has a NULL. For payloads that are encoded already: `application/avro`, or a column of it."),
		template("dataschema", &s.DataSchema).
			Doc("Template of `dataschema`, an absolute URI. Empty: none."),
		setting.Columns("extensions", &s.Extensions, extension, checkExtension).
			Doc("Further attributes by name, each from a column, as text. NULL leaves it out."),
	}
	for i := range keys {
		if keys[i].Name != "mode" {
			keys[i].Applies = s.IsSet
		}
		keys[i].Name = Section + "." + keys[i].Name
	}
	return keys
}

// IsSet reports whether messages are CloudEvents.
func (s *Settings) IsSet() bool { return s.Mode != "" }

// Templates are those that every event must have a value for, by their attributes.
func (s *Settings) Templates() []sink.NamedTemplate {
	if !s.IsSet() {
		return nil
	}
	return []sink.NamedTemplate{{Key: "source", Template: &s.Source}, {Key: "type", Template: &s.Type}}
}

// Columns are the extra columns that the section names.
func (s *Settings) Columns() (names []string) {
	if !s.IsSet() {
		return nil
	}
	for _, t := range []*sink.Template{&s.Source, &s.Type, &s.Subject, &s.DataContentType, &s.DataSchema} {
		names = append(names, t.Columns()...)
	}
	for _, x := range s.Extensions {
		names = append(names, x.Column)
	}
	return names
}

// longestExtension is how long the name of an extension may be, in bytes: an AMQP header's name has
// at most 255, with its prefix. CloudEvents recommends at most 20.
const longestExtension = 200

func checkExtension(name string) error {
	switch {
	case len(name) > longestExtension:
		return fmt.Errorf("has a name of %d bytes; a name of an attribute has at most %d here, and at most 20 is best", len(name), longestExtension)
	case name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "":
		return fmt.Errorf("has the name %q; the name of an attribute has only a-z and 0-9", name)
	case name == "data" || slices.Contains(attributeNames[:], name):
		return fmt.Errorf("has %q, which the relay or the format writes (%s, data); choose another name", name, strings.Join(attributeNames[:], ", "))
	}
	return nil
}

// Check calls fault with what no event could be sent with, by the key. Values of rows are checked
// when they are sent.
func (s *Settings) Check(fault func(key string, err error)) {
	fault(Section+".source", checkURITemplate(s.Source, false))
	fault(Section+".type", checkTextTemplate(s.Type, true))
	fault(Section+".subject", checkTextTemplate(s.Subject, false))
	fault(Section+".datacontenttype", s.checkContentType())
	fault(Section+".dataschema", checkURITemplate(s.DataSchema, true))
}

var placeholder = lazy.Regexp(`\{[^{}]*\}`)

// checkURITemplate checks a template with an x in the place of each value.
func checkURITemplate(t sink.Template, absolute bool) error {
	text := t.String()
	if text == "" {
		return nil
	}
	if err := checkURI(placeholder().ReplaceAllString(text, "x"), absolute && text[0] != '{'); err != nil {
		return fmt.Errorf("is %q, which %w", text, err)
	}
	return nil
}

func checkTextTemplate(t sink.Template, required bool) error {
	text := []byte(t.String())
	switch {
	case required && isBlank(text):
		return errors.New("is empty, and every CloudEvent must have one")
	case !isText(text):
		return errors.New("has a control character or a noncharacter of Unicode, which no attribute may have")
	}
	return nil
}

func (s *Settings) checkContentType() error {
	text, constant := s.DataContentType.Constant()
	if !constant || text == "" {
		return nil
	}
	if err := checkContentType(text, s.Mode == Structured); err != nil {
		return fmt.Errorf("is %q, which %w", text, err)
	}
	return nil
}
